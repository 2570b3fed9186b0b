package io.nccl4j.internal.spi;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import io.nccl4j.memory.MemoryReport.Line;
import io.nccl4j.property.Property;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Test;

/** The book against a list of what is booked. */
class MemoryBookTest {
  private static final String DEVICE = "device";

  private record Model(MemoryBook.Booking booking, int[] account, int[] purpose, long[] bytes) {}

  /**
   * Books, resizes, moves and releases in any order: a number is the kind of action, and the rest
   * of it what that acts on.
   */
  @Test
  void anyHistory() {
    Property.holds(
        300,
        draw -> {
          int[] actions = draw.list("actions", 100, 0, 1 << 20);
          MemoryBook book = new MemoryBook();
          List<MemoryBook.Account> accounts = new ArrayList<>();
          for (int i = 0; i < 3; i++) {
            accounts.add(book.open("owner " + i, DEVICE));
          }
          List<Model> models = new ArrayList<>();
          for (int action : actions) {
            int number = action / 5;
            int account = number % 3;
            int purpose = number / 3 % MemoryPurpose.values().length;
            Model any = models.isEmpty() ? null : models.get(number % models.size());
            if (action % 5 < 2 || any == null) {
              MemoryBook.Booking booking =
                  accounts
                      .get(account)
                      .book(MemoryPurpose.values()[purpose], MemoryPlace.DEVICE, number);
              models.add(
                  new Model(
                      booking, new int[] {account}, new int[] {purpose}, new long[] {number}));
            } else if (action % 5 == 2) {
              any.booking.resize(number / 2);
              any.bytes[0] = number / 2;
            } else if (action % 5 == 3) {
              any.booking.move(accounts.get(account), MemoryPurpose.values()[purpose]);
              any.account[0] = account;
              any.purpose[0] = purpose;
            } else {
              any.booking.release();
              models.remove(any);
            }
            check(book, accounts, models);
          }
        });
  }

  private static void check(
      MemoryBook book, List<MemoryBook.Account> accounts, List<Model> models) {
    long all = models.stream().mapToLong(model -> model.bytes[0]).sum();
    assertEquals(all, book.bytes(DEVICE, MemoryPlace.DEVICE));
    assertEquals(0, book.bytes(DEVICE, MemoryPlace.PINNED));
    for (int a = 0; a < accounts.size(); a++) {
      int account = a;
      for (Line line : accounts.get(a).lines()) {
        long expected =
            models.stream()
                .filter(m -> m.account[0] == account && m.purpose[0] == line.purpose().ordinal())
                .mapToLong(m -> m.bytes[0])
                .sum();
        assertEquals(expected, line.bytes());
        assertTrue(line.peakBytes() >= line.bytes());
      }
    }
  }

  /** What a peer may still touch outlives its owner, and is not forgotten before it is freed. */
  @Test
  void closedAccountStaysUntilAllIsReleased() {
    MemoryBook book = new MemoryBook();
    MemoryBook.Account account = book.open("rank 0", DEVICE);
    MemoryBook.Booking booking = account.book(MemoryPurpose.STAGING, MemoryPlace.SHARED, 7);
    account.close();
    MemoryReport report = book.report("device", DEVICE);
    assertEquals("rank 0 (closed)", report.lines().getFirst().owner());
    assertEquals(7, report.bytes(MemoryPurpose.STAGING));
    booking.release();
    assertEquals(List.of(), book.report("device", DEVICE).lines());
    assertThrows(IllegalStateException.class, booking::release);
  }

  /** A device shows its own and the process's. */
  @Test
  void devicesAreApart() {
    MemoryBook book = new MemoryBook();
    book.open("process", null).book(MemoryPurpose.UNUSED, MemoryPlace.SHARED, 1);
    book.open("one", DEVICE).book(MemoryPurpose.USER, MemoryPlace.SHARED, 2);
    book.open("other", "other").book(MemoryPurpose.USER, MemoryPlace.SHARED, 4);
    assertEquals(3, book.bytes(DEVICE, MemoryPlace.SHARED));
    assertEquals(5, book.bytes("other", MemoryPlace.SHARED));
  }

  @Test
  void reportIsATable() {
    MemoryBook book = new MemoryBook();
    MemoryBook.Account account = book.open("rank 0", DEVICE);
    account.book(MemoryPurpose.USER, MemoryPlace.DEVICE, 3 << 20).resize(1 << 20);
    MemoryReport report =
        new MemoryReport(
            "rank 0",
            account.lines(),
            List.of(new MemoryReport.Comparison("taken", 5, "booked", 12, "cuMemGetInfo")));
    assertEquals(
        """
        memory of rank 0
          owner   purpose  place     bytes   MiB  most bytes  basis
          rank 0  user     device  1048576  1.00     3145728  booked
          sum              device  1048576  1.00
          taken: 5 B (booked), 12 B (cuMemGetInfo), difference +7 B
        """,
        report.toString());
  }
}

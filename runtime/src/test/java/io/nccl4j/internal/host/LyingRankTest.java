package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DataType;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Memory;
import io.nccl4j.bindings.RobustMutex;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.bootstrap.Joiner;
import io.nccl4j.internal.bootstrap.LyingCreator;
import io.nccl4j.internal.bootstrap.Membership;
import io.nccl4j.internal.bootstrap.Rendezvous;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.liveness.DeathWatch;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Signature;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.UUID;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * A process of the same user that has the secret joins as rank 0 and lies: rank 1, another process,
 * refuses it with a typed exception that says why, lives, and takes the next one.
 */
@Timeout(90)
class LyingRankTest {
  private static final int MFD_HUGETLB = 4;
  private static final long MIB = 1 << 20;
  private static final long HEAP_BYTES = 16 * MIB;
  private static final long CONTROL = MIB;
  private static final long STAGING = 8 * MIB;
  private static final int SEALS = Memory.F_SEAL_SHRINK | Memory.F_SEAL_GROW | Memory.F_SEAL_SEAL;

  private static ChildJvm honest;

  /** Whether it owes an answer: then it cannot be asked again. */
  private static boolean asked;

  /** Holds the liar's mutex, which belongs to a thread. */
  private final ExecutorService liar = Executors.newSingleThreadExecutor();

  private final UUID process = UUID.randomUUID();
  private int fd = -1;
  private MemorySegment heap = MemorySegment.NULL;
  private ControlBlock control;

  @BeforeEach
  void startHonestRank() throws Exception {
    Assumptions.assumeTrue(Libc.isAvailable(), Libc::unavailableReason);
    if (honest == null) {
      honest = ChildJvm.start(HonestRankMain.class);
      honest.expect("ready");
    }
  }

  @AfterEach
  void closeHeap() throws Exception {
    if (asked) {
      endHonestRank();
    }
    liar.shutdown();
    assertTrue(liar.awaitTermination(30, TimeUnit.SECONDS));
    if (heap.byteSize() > 0) {
      Memory.munmap(heap);
    }
    if (fd >= 0) {
      Descriptors.close(fd);
    }
  }

  @AfterAll
  static void endHonestRank() {
    if (honest != null) {
      honest.close();
      honest = null;
      asked = false;
    }
  }

  /** A heap as it should be, with a rank in it that is alive. */
  private void makeHeap(int flags, int seals) {
    fd = Memory.memfdCreate("liar", Memory.MFD_CLOEXEC | Memory.MFD_ALLOW_SEALING | flags);
    Memory.ftruncate(fd, HEAP_BYTES);
    Memory.addSeals(fd, seals);
    if (flags == 0) {
      heap = HostHeap.map(fd, HEAP_BYTES);
      control = new ControlBlock(heap, CONTROL, 2);
      control.format(1L << 60 | System.nanoTime(), 1, true);
      DeathWatch.format(control.mutex(0));
      DeathWatch.format(control.mutex(1));
      control.setPlain(control.staging(0), STAGING);
      control.setRelease(control.state(0), RankState.of(RankState.ALIVE, 0, 0));
    }
  }

  private Joiner joiner(long bytes, long offset) {
    return new Joiner(0, 2, process, Layout.VERSION, fd, bytes, offset);
  }

  /** What the honest rank makes of it. */
  private static void refused(String type, String... parts) throws Exception {
    String answer = honest.expect("refused");
    asked = false;
    assertTrue(answer.startsWith(type), answer);
    for (String part : parts) {
      assertTrue(answer.contains(part), answer);
    }
  }

  /** Joins while the honest rank does; the honest rank has made the id if this test does not. */
  private void join(String what, long bytes, long offset) throws Exception {
    asked = true;
    honest.tell("create");
    String id = honest.expect("id");
    honest.tell(what + " " + id);
    try (Membership membership =
        Rendezvous.join(UniqueId.parse(id), joiner(bytes, offset), Duration.ofSeconds(20))) {
      membership.agree();
    } catch (NcclException e) {
      // The honest rank says why.
      System.out.println("the liar hears: " + e.getMessage());
    }
  }

  // ---- heaps

  enum Flaw {
    UNSEALED("is not sealed"),
    HALF_SEALED("is not sealed"),
    TOO_SMALL("has 16777216 B, but is said to have 67108864 B"),
    NO_MEMORY_FILE("is not a memory file"),
    HUGE_PAGES("is not a memory file of ordinary pages");

    final String text;

    Flaw(String text) {
      this.text = text;
    }
  }

  private long make(Flaw flaw) throws Exception {
    switch (flaw) {
      case UNSEALED -> makeHeap(0, 0);
      case HALF_SEALED -> makeHeap(0, Memory.F_SEAL_GROW);
      case NO_MEMORY_FILE -> {
        Path file = Files.createTempFile("heap", null);
        fd = Descriptors.open(file.toString(), Descriptors.O_RDWR | Descriptors.O_CLOEXEC, 0);
        Files.delete(file);
        Memory.ftruncate(fd, HEAP_BYTES);
      }
      case HUGE_PAGES -> {
        try {
          makeHeap(MFD_HUGETLB, SEALS);
        } catch (LibcException e) {
          Assumptions.abort("no files of huge pages here: " + e.getMessage());
        }
      }
      case TOO_SMALL -> makeHeap(0, SEALS);
    }
    return flaw == Flaw.TOO_SMALL ? 4 * HEAP_BYTES : HEAP_BYTES;
  }

  @ParameterizedTest
  @EnumSource
  void heapsThatCouldKillAreNotLetIn(Flaw flaw) throws Exception {
    long bytes = make(flaw);
    join("join", bytes, bytes - 2 * MIB);
    refused("PeerFailedException", "rank 0", "offers a heap that " + flaw.text);
  }

  /** As above, but whoever made the id has let the rank in, or is it. */
  @ParameterizedTest
  @EnumSource
  void heapsThatCouldKillAreNotMapped(Flaw flaw) throws Exception {
    long bytes = make(flaw);
    lieAsCreator(
        (one, oneBytes) -> LyingCreator.table(process, bytes, one, oneBytes, bytes - 2 * MIB));
    refused("PeerFailedException", "rank 0", "offers a heap that " + flaw.text);
  }

  private void lieAsCreator(LyingCreator.Lie lie) throws Exception {
    lieAsCreator(lie, LyingCreator.agreed());
  }

  private void lieAsCreator(LyingCreator.Lie lie, byte @Nullable [] verdict) throws Exception {
    try (LyingCreator creator = new LyingCreator()) {
      asked = true;
      honest.tell("join " + HexFormat.of().formatHex(creator.id()));
      creator.serve(lie, fd, verdict);
    }
  }

  // ---- tables

  @ParameterizedTest
  @CsvSource({"GARBAGE", "TRUNCATED", "KIND", "NOT_IN_IT", "NEGATIVE_OFFSET", "NEGATIVE_SIZE"})
  void tablesThatFitNothingAreRefused(String kind) throws Exception {
    makeHeap(0, SEALS);
    lieAsCreator(
        (one, oneBytes) -> {
          byte[] table = LyingCreator.table(process, HEAP_BYTES, one, oneBytes, CONTROL);
          return switch (kind) {
            case "TRUNCATED" -> Arrays.copyOf(table, table.length - 3);
            case "KIND" -> new byte[] {2, 99, 0, 0, 0, 0, 0, 0, 0, 0};
            case "NOT_IN_IT" ->
                LyingCreator.table(process, HEAP_BYTES, UUID.randomUUID(), oneBytes, CONTROL);
            case "NEGATIVE_OFFSET" ->
                LyingCreator.table(process, HEAP_BYTES, one, oneBytes, -CONTROL);
            case "NEGATIVE_SIZE" -> LyingCreator.table(process, -1, one, oneBytes, CONTROL);
            default -> new byte[] {9, 9, 9};
          };
        });
    refused("InternalErrorException", "answers a rendezvous with");
  }

  // ---- verdicts

  @ParameterizedTest
  @CsvSource({
    "NONE, closed the connection",
    "EMPTY, answer of 0 B",
    "KIND, an invalid verdict",
    "TRUNCATED, understood"
  })
  void verdictsThatAreNoneAreRefused(String kind, String text) throws Exception {
    makeHeap(0, SEALS);
    byte[] verdict =
        switch (kind) {
          case "EMPTY" -> new byte[0];
          case "KIND" -> new byte[] {9};
          case "TRUNCATED" -> new byte[] {2, 0, 0};
          default -> null;
        };
    lieAsCreator(
        (one, oneBytes) -> LyingCreator.table(process, HEAP_BYTES, one, oneBytes, CONTROL),
        verdict);
    refused(verdict == null ? "PeerFailedException" : "InternalErrorException", text);
  }

  // ---- control blocks

  @ParameterizedTest
  @CsvSource({
    "35184372088832, lies at byte 35184372088832 of a heap of 16777216 B",
    "16773120, lies at byte 16773120",
    "4097, at a multiple of 4096",
    "9223372036854771712, lies at byte"
  })
  void controlBlocksLieInTheHeap(long offset, String text) throws Exception {
    makeHeap(0, SEALS);
    join("join", HEAP_BYTES, offset);
    refused("PeerFailedException", "rank 0 offers a control block", text);
  }

  @Test
  void controlBlocksAreForAllRanks() throws Exception {
    makeHeap(0, SEALS);
    heap.set(ValueLayout.JAVA_LONG, CONTROL + 8, 200);
    join("join", HEAP_BYTES, CONTROL);
    refused("PeerFailedException", "rank 0 offers a control block", "for 200 ranks");
  }

  /**
   * Garbage, and a kind with a priority that there is not: the C library aborts where it is locked.
   */
  @ParameterizedTest
  @CsvSource({"0x5f5f5f5f", "0xc2"})
  void mutexesAreMutexes(int kind) throws Exception {
    makeHeap(0, SEALS);
    control.mutex(0).fill((byte) 0x5f);
    control.mutex(0).set(ValueLayout.JAVA_INT, 16, kind);
    join("join", HEAP_BYTES, CONTROL);
    refused("PeerFailedException", "rank 0", "no mutex where its death would show");
  }

  /** The honest rank's own one is of its own making, whatever was there. */
  @Test
  void ownMutexIsMadeByItsOwner() throws Exception {
    makeHeap(0, SEALS);
    control.mutex(1).fill((byte) 0x5f);
    control.setPlain(control.staging(0), -1);
    join("join", HEAP_BYTES, CONTROL);
    refused("PeerFailedException", "rank 0", "staging area");
  }

  @ParameterizedTest
  @CsvSource({"-4096", "16773120", "9223372036854771712"})
  void stagingAreasLieInTheHeap(long offset) throws Exception {
    makeHeap(0, SEALS);
    control.setPlain(control.staging(0), offset);
    join("join", HEAP_BYTES, CONTROL);
    refused("PeerFailedException", "rank 0 says that its staging area lies at byte " + offset);
  }

  // ---- after joining: no damage beyond an exception

  private void awaitTrue(BooleanSupplier condition) {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while (!condition.getAsBoolean()) {
      assertTrue(System.nanoTime() < end, "the honest rank does not get there");
      Thread.onSpinWait();
    }
  }

  /** Joins properly, holds the mutex, and lies when the honest rank has come as far. */
  private void lieAfterJoining(String what, BooleanSupplier when, Runnable lie) throws Exception {
    makeHeap(0, SEALS);
    liar.submit(() -> RobustMutex.tryLock(control.mutex(0))).get();
    join(what, HEAP_BYTES, CONTROL);
    awaitTrue(when);
    lie.run();
  }

  private boolean isAlive() {
    return RankState.code(control.getAcquire(control.state(1))) == RankState.ALIVE;
  }

  private void release() {
    liar.submit(() -> RobustMutex.unlock(control.mutex(0)));
  }

  private long slot(int rank) {
    return control.outbox(rank) + Layout.OUTBOX_SLOT_BYTES;
  }

  @ParameterizedTest
  @CsvSource({"35184372088832", "-1048576", "16777200", "9223372036854775807"})
  void buffersLieInTheHeap(long offset) throws Exception {
    lieAfterJoining(
        "join",
        () -> control.getAcquire(slot(1)) != 0,
        () -> {
          control.setPlain(slot(0) + 16, offset);
          control.setPlain(slot(0) + 24, offset);
          control.setRelease(slot(0), control.getAcquire(slot(1)));
          control.setRelease(control.sync(0), 1);
        });
    refused("InternalErrorException", "allReduce", "IndexOutOfBounds");
    release();
  }

  @ParameterizedTest
  @CsvSource({"35184372088832, 0", "-4096, 0", "35184372088832, 1", "9223372036854775807, 1"})
  void messagesLieInTheHeap(long offset, int mode) throws Exception {
    lieAfterJoining(
        "receive",
        this::isAlive,
        () -> {
          long slot = control.lane(0, 1) + Layout.LANE_SLOT_BYTES;
          control.setPlain(slot + 8, offset);
          control.setPlain(slot + 16, mode);
          control.setRelease(control.filled(0, 1), 1);
          int signature =
              Signature.of(
                  Signature.code(Operation.SEND, DataType.INT32.ordinal(), 0, 0),
                  HonestRankMain.COUNT);
          control.setRelease(slot, (long) signature << 32 | 1);
        });
    refused("InternalErrorException", "recv", "IndexOutOfBounds");
    release();
  }

  @Test
  void reasonsToFailNameRanksThatThereAre() throws Exception {
    lieAfterJoining(
        "join",
        () -> control.getAcquire(slot(1)) != 0,
        () -> {
          control.setRelease(control.state(0), RankState.of(RankState.MISMATCH, 0xffff, 1));
          control.advanceEpoch();
        });
    refused("PeerFailedException", "names rank 65535, which does not exist");
    release();
  }

  @Test
  void callsThatThereAreNotAreNotDescribed() throws Exception {
    lieAfterJoining(
        "join",
        () -> control.getAcquire(slot(1)) != 0,
        () -> {
          long call = control.ledger(0) + Layout.LINE + 16;
          control.setPlain(call, 0xfefefefeL);
          control.setRelease(control.ledger(0), 1);
          control.setRelease(control.state(0), RankState.of(RankState.MISMATCH, 1, 1));
          control.advanceEpoch();
        });
    refused("MismatchException", "rank 0 called an operation that is no longer recorded");
    release();
  }

  @Test
  void blocksOfSplitCommunicatorsLieInTheHeap() throws Exception {
    lieAfterJoining(
        "split",
        () -> control.getAcquire(slot(1)) != 0,
        () -> {
          // Two gatherings of a few longs: no refusal, color and key; no refusal and where the
          // block
          // lies.
          control.setPlain(slot(0) + 8, 0);
          control.setPlain(slot(0) + 16, 0);
          control.setPlain(slot(0) + 24, -1);
          control.setRelease(slot(0), control.getAcquire(slot(1)));
          long next = Layout.OUTBOX_SLOT_BYTES;
          awaitTrue(() -> control.getAcquire(slot(1) + next) != 0);
          control.setPlain(slot(0) + next + 8, 0);
          control.setPlain(slot(0) + next + 16, 1L << 45);
          control.setRelease(slot(0) + next, control.getAcquire(slot(1) + next));
        });
    refused("PeerFailedException", "rank 0 offers a control block that lies at byte");
    release();
  }
}

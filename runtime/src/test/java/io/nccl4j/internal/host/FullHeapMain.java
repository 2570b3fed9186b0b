package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;

/**
 * A process with rank 1 of 2 whose Java heap is full for a while: {@code ID MILLIS}. It submits a
 * sum and asks for a future, prints {@code full}, {@code freed}, and {@code completed THREAD} when
 * the future is complete; then it takes part in another sum, and prints {@code done}.
 *
 * <p>Or it serves a unique id meanwhile, which it prints first, when one printed before has been
 * used and its input says so: {@code create MILLIS}; then it lives until its input ends.
 */
public final class FullHeapMain {
  private static final FileOutputStream OUT = new FileOutputStream(FileDescriptor.out);
  private static Object[] garbage;
  private static volatile String completer = "nobody";

  private FullHeapMain() {}

  public static void main(String[] arguments) throws Exception {
    long millis = Long.parseLong(arguments[1]);
    byte[] full = line("full");
    byte[] freed = line("freed");
    if (arguments[0].equals("create")) {
      // The first one is for code that never ran, see below.
      System.out.println("id " + UniqueId.create(Backend.HOST));
      int unusedSignal = System.in.read();
      System.out.println("id " + UniqueId.create(Backend.HOST));
      fill(full, millis * 1_000_000);
      OUT.write(freed);
      int unusedEnd = System.in.read();
      return;
    }
    Communicator communicator =
        Communicator.initRank(
            Device.get(Backend.HOST, 1),
            2,
            UniqueId.parse(arguments[0]),
            1,
            HostRanks.patient().build());
    CompletableFuture<Void> told = null;
    try (communicator;
        DeviceBuffer in = communicator.device().allocate(DataType.INT32, 2);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, 2);
        Stream stream = communicator.device().newStream();
        Event event = communicator.device().newEvent()) {
      // Once before: code that never ran is linked, which needs memory.
      for (int i = 0; i < 2; i++) {
        if (told != null) {
          told.get();
          System.out.println("completed " + completer);
        }
        communicator.allReduce(in, out, 2, DataType.INT32, ReduceOp.SUM, stream);
        stream.record(event);
        told = event.toFuture().thenRun(FullHeapMain::completed);
      }
      fill(full, millis * 1_000_000);
      OUT.write(freed);
      told.get();
      System.out.println("completed " + completer);
      communicator.allReduce(in, out, 2, DataType.INT32, ReduceOp.SUM, stream);
      stream.synchronize();
    }
    System.out.println("done");
  }

  /** It may run while the heap is full, and allocates nothing. */
  private static void completed() {
    completer = Thread.currentThread().getName();
  }

  private static byte[] line(String text) {
    return (text + "\n").getBytes(StandardCharsets.UTF_8);
  }

  /** Leaves no byte of the heap free, keeps it so for a while, and frees it. */
  private static void fill(byte[] full, long nanos) throws IOException {
    int size = 1 << 20;
    long end = Long.MAX_VALUE;
    // Once before, as above.
    OUT.write(line("filling"));
    LockSupport.parkNanos(1);
    while (System.nanoTime() < end) {
      try {
        garbage = new Object[] {garbage, new byte[size]};
      } catch (OutOfMemoryError e) {
        if (size > 1) {
          size /= 16;
          continue;
        }
        if (end == Long.MAX_VALUE) {
          OUT.write(full);
          end = System.nanoTime() + nanos;
        }
        LockSupport.parkNanos(1_000_000);
      }
    }
    garbage = null;
  }
}

package io.nccl4j.internal.liveness;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Memory;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;

/**
 * One process of a ring of watches: {@code FILE SELF COUNT MEBIBYTES}. Holds its signal, prints
 * {@code holding}, then obeys its input: {@code watch}, {@code publish} (left), {@code close}.
 * Prints {@code dead INDEX NANOTIME} for each death.
 */
public final class DeathWatchMain {
  static final long BYTES = 65536;

  private static final long STRIDE = 128;
  private static final long LEFT = 32768;
  private static final VarHandle FLAG = ValueLayout.JAVA_INT.varHandle();

  private DeathWatchMain() {}

  static MemorySegment map(int fd) {
    return Memory.mmap(BYTES, Memory.PROT_READ | Memory.PROT_WRITE, Memory.MAP_SHARED, fd, 0);
  }

  static MemorySegment[] mutexes(MemorySegment memory, int count) {
    MemorySegment[] mutexes = new MemorySegment[count];
    for (int i = 0; i < count; i++) {
      mutexes[i] = memory.asSlice(i * STRIDE, DeathWatch.MUTEX_BYTES);
    }
    return mutexes;
  }

  static boolean left(MemorySegment memory, int index) {
    return (int) FLAG.getVolatile(memory, LEFT + index * STRIDE) == 1;
  }

  static void leave(MemorySegment memory, int index) {
    FLAG.setVolatile(memory, LEFT + index * STRIDE, 1);
  }

  /** Closes a watch, and returns when it touches nothing any more. */
  static void end(DeathWatch watch) {
    watch.close();
    while (!watch.hasEnded()) {
      Thread.onSpinWait();
    }
  }

  public static void main(String[] args) throws Exception {
    int fd = Descriptors.open(args[0], Descriptors.O_RDWR | Descriptors.O_CLOEXEC, 0);
    int self = Integer.parseInt(args[1]);
    int count = Integer.parseInt(args[2]);
    long touched = Long.parseLong(args[3]) << 20;
    if (touched > 0) {
      Memory.mmap(
          touched,
          Memory.PROT_READ | Memory.PROT_WRITE,
          Memory.MAP_PRIVATE | Memory.MAP_ANONYMOUS | Memory.MAP_POPULATE,
          -1,
          0);
    }
    MemorySegment memory = map(fd);
    DeathWatch watch =
        new DeathWatch(
            "watch-" + self,
            mutexes(memory, count),
            self,
            k -> left(memory, k),
            k -> System.out.println("dead " + k + " " + System.nanoTime()),
            e -> System.out.println("broken " + e));
    watch.hold();
    System.out.println("holding");
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      switch (line) {
        case "watch" -> watch.watch();
        case "publish" -> leave(memory, self);
        case "close" -> end(watch);
        default -> throw new IllegalArgumentException(line);
      }
      System.out.println("done " + line);
    }
  }
}

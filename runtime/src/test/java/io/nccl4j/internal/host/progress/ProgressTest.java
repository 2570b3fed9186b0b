package io.nccl4j.internal.host.progress;

import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.machine.Machine;
import io.nccl4j.internal.memory.Uses;
import java.util.Collections;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.concurrent.Callable;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** What threads that wait do for each other. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ProgressTest {
  private static final int THREADS = 64;
  private static final long EARLY_NANOS = 100_000_000;

  /** A stream that waits for ever, and counts who looks at it. */
  private static final class Stuck extends Driven {
    private final LongAdder own = new LongAdder();
    private final LongAdder others = new LongAdder();

    /** Those of {@code own} since the thread has surely begun to sleep between two looks. */
    private final LongAdder late = new LongAdder();

    private final Thread driver = Thread.currentThread();
    private final long start = System.nanoTime();

    Stuck() {
      show(1);
    }

    @Override
    public int run(long target, int patience) {
      if (Thread.currentThread() != driver) {
        others.increment();
      } else {
        own.increment();
        if (System.nanoTime() - start > EARLY_NANOS) {
          late.increment();
        }
      }
      return Step.BLOCKED;
    }

    @Override
    public void checkFaults() {}

    @Override
    public void checkDeadline(long now) {}

    @Override
    public void checkPlacement(long now) {}

    @Override
    public String describeHead() {
      return "what never comes";
    }

    @Override
    public void addUses(Object buffer, Uses uses) {}
  }

  /** If each looked at all the others each time, ranks would slow down the one they wait for. */
  @Test
  void manyThatWaitLookMostlyAtTheirOwnStreams() throws Exception {
    CyclicBarrier ready = new CyclicBarrier(THREADS);
    List<Callable<Stuck>> waits = Collections.nCopies(THREADS, () -> driven(ready));
    LongSummaryStatistics own = new LongSummaryStatistics();
    LongSummaryStatistics others = new LongSummaryStatistics();
    try (ExecutorService threads = Executors.newFixedThreadPool(THREADS)) {
      for (Future<Stuck> wait : threads.invokeAll(waits)) {
        own.accept(wait.get().own.sum());
        others.accept(wait.get().others.sum());
      }
    }
    String looks = own.getSum() + " looks at their own streams, " + others.getSum() + " at others";
    assertTrue(own.getMin() > 0, looks);
    assertTrue(others.getMin() > 0, looks);
    assertTrue(others.getSum() < THREADS / 3 * own.getSum(), looks);
  }

  /** The more ranks share a processor, the longer they sleep. */
  @Test
  void ranksOfACrowdSleepLonger() throws Exception {
    try {
      Progress.setRanks(2 * Machine.PROCESSORS);
      long few = driven(new CyclicBarrier(1)).late.sum();
      Progress.setRanks(64 * Machine.PROCESSORS);
      long many = driven(new CyclicBarrier(1)).late.sum();
      assertTrue(3 * many < 2 * few, () -> many + " looks with 64 a processor, " + few + " with 2");
    } finally {
      Progress.setRanks(1);
    }
  }

  private static Stuck driven(CyclicBarrier ready) throws Exception {
    Stuck stream = new Stuck();
    Progress.add(stream);
    try {
      ready.await();
      assertFalse(Progress.drive(stream, 1, TimeUnit.SECONDS.toNanos(1)));
    } finally {
      Progress.remove(stream);
    }
    return stream;
  }
}

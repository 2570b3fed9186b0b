package io.nccl4j.conformance;

import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;

/** Waits of tests without checked exceptions. */
final class Waits {
  private Waits() {}

  static void await(CyclicBarrier barrier) {
    try {
      barrier.await();
    } catch (InterruptedException | BrokenBarrierException e) {
      throw new AssertionError("a thread of the test did not come", e);
    }
  }
}

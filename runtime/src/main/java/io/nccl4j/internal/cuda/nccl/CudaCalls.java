package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.Guard;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.Interrupts;
import java.lang.foreign.MemorySegment;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Calls of NCCL on a communicator that may wait for other ranks, or go on in the background, as the
 * configuration has it.
 */
@SuppressWarnings("try") // a scope is entered, not used
public final class CudaCalls {
  /** A call with NCCL's handle; returns NCCL's result. */
  public interface Call {
    int run(MemorySegment handle);
  }

  private final NcclRank rank;
  private final CudaHealth health;
  private final CudaPending pending;

  /** Calls on a rank's communicator. */
  public CudaCalls(NcclRank rank, CudaHealth health, CudaPending pending) {
    this.rank = rank;
    this.health = health;
    this.pending = pending;
  }

  public NcclRank rank() {
    return rank;
  }

  /**
   * Calls, and waits until NCCL is done or the init timeout is over.
   *
   * @param what for messages, for example {@code shrink}
   * @throws NcclException if it fails; the communicator has failed then, but for a wrong argument
   */
  public void run(String what, Call call) {
    run(what, rank.config().initTimeout(), call);
  }

  /** As the other form, within {@code timeout}; the call is made on a thread of its own. */
  public void run(String what, Duration timeout, Call call) {
    String of = what + " of communicator " + rank.name();
    handle(of);
    Gpu gpu = rank.memory().gpu();
    gpu.prepare();
    try {
      Patiently.run(
          "nccl4j-" + of,
          () -> {
            try (Gpu.Scope ignored = gpu.enter()) {
              // Asked again: it may have been aborted before the thread came to this.
              NcclResults.check(call.run(handle(of)), of);
            }
          },
          timeout,
          new Wait(rank.handle(), health, of, timeout));
    } catch (InvalidArgumentException e) {
      throw e;
    } catch (NcclException e) {
      health.fail(Interrupts.asFailure(e));
      throw e;
    }
    // The call says success also when it goes on in the background.
    pending.callGoesOn(of);
    try {
      pending.await(timeout, () -> of + ": not all ranks called it");
    } catch (InterruptedWaitException e) {
      health.fail(Interrupts.asFailure(e));
      throw e;
    }
    health.throwIfFailed();
  }

  /** A call on a communicator, which fails when nobody waits for the call any more. */
  private record Wait(NcclHandle handle, CudaHealth health, String of, Duration timeout)
      implements Patiently.Wait {
    @Override
    public void callIsMadeBy(Thread thread) {
      handle.setCalling(thread);
    }

    @Override
    public @Nullable NcclException over() {
      NcclException cause = health.failure();
      if (cause == null) {
        return null;
      }
      health.told();
      return Failures.again(cause);
    }

    @Override
    public @Nullable NcclException ofPeer() {
      return over();
    }

    @Override
    public NcclException late() {
      return CudaCalls.late(of, timeout);
    }

    @Override
    public void giveUp(NcclException reason) {
      health.fail(Interrupts.asFailure(reason));
    }
  }

  static DeadlineException late(String of, Duration timeout) {
    return new DeadlineException(
        of + " was not done after " + timeout.toMillis() + " ms",
        "call it on all ranks that it needs; init-timeout sets the deadline");
  }

  /** Calls what does not wait; a failure leaves the communicator as it is. */
  public void query(String what, Call call) {
    String of = what + " of communicator " + rank.name();
    Guard guard = rank.handle().guard();
    int result;
    guard.enter();
    try {
      result = call.run(handle(of));
    } finally {
      guard.leave();
    }
    NcclResults.check(result, of);
  }

  private MemorySegment handle(String of) {
    MemorySegment handle = rank.handle().get();
    if (handle.equals(MemorySegment.NULL)) {
      health.throwIfFailed();
      throw new InvalidUsageException(of + ": it is closed", "create a new one");
    }
    return handle;
  }
}

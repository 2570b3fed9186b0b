package io.nccl4j.internal.bootstrap;

import io.nccl4j.InvalidArgumentException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;

/** A point in time until which to wait. Immutable. */
public final class Deadline {
  private final long start = System.nanoTime();
  private final long nanos;

  private Deadline(long nanos) {
    this.nanos = nanos;
  }

  /**
   * That long from now; more than 292 years is never.
   *
   * @throws InvalidArgumentException if the time is not positive
   */
  public static Deadline after(Duration timeout) {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidArgumentException("the timeout is " + timeout, "use a positive duration");
    }
    boolean never = timeout.compareTo(Duration.ofNanos(Long.MAX_VALUE)) > 0;
    return new Deadline(never ? Long.MAX_VALUE : timeout.toNanos());
  }

  /** A deadline that never passes. */
  static Deadline never() {
    return new Deadline(Long.MAX_VALUE);
  }

  /** That many milliseconds from now; 0 or less has passed. */
  static Deadline afterMillis(long millis) {
    return new Deadline(TimeUnit.MILLISECONDS.toNanos(millis));
  }

  /** Nanoseconds left; 0 or less if it has passed. */
  long remainingNanos() {
    return nanos - (System.nanoTime() - start);
  }

  /** Milliseconds left, rounded up: 0 or less only if it has passed. */
  long remainingMillis() {
    long remaining = remainingNanos();
    return remaining <= 0 ? 0 : (remaining - 1) / TimeUnit.MILLISECONDS.toNanos(1) + 1;
  }

  public boolean passed() {
    return remainingNanos() <= 0;
  }

  /** The length of the wait in milliseconds. */
  long lengthMillis() {
    return TimeUnit.NANOSECONDS.toMillis(nanos);
  }

  /** The length of the wait, for messages. */
  @Override
  public String toString() {
    return lengthMillis() + " ms";
  }
}

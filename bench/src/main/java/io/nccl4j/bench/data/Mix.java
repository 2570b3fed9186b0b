package io.nccl4j.bench.data;

/** A 64-bit hash of several numbers: the same on every rank, run and machine. */
public final class Mix {
  private static final long GOLDEN = 0x9e3779b97f4a7c15L;

  private Mix() {}

  /** Hashes one number so that every bit of it changes half the bits of the result. */
  public static long of(long value) {
    long x = value + GOLDEN;
    x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
    x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
    return x ^ x >>> 31;
  }

  /** Hashes two numbers, in this order. */
  public static long of(long first, long second) {
    return of(of(first) + second);
  }

  /** Hashes three numbers, in this order. */
  public static long of(long first, long second, long third) {
    return of(of(first, second) + third);
  }

  /** A number from 0 to {@code bound}, both included, drawn from a hash. */
  static long upTo(long bound, long hash) {
    return bound == -1 ? hash : Long.remainderUnsigned(hash, bound + 1);
  }
}

package io.nccl4j.internal.memory;

/**
 * Sizes of blocks: multiples of 256 bytes up to 2 KiB, then eight sizes for each doubling, so that
 * rounding up adds less than an eighth. Every multiple of 4096 up to 32 KiB is such a size, and all
 * above are multiples of 4096.
 */
final class SizeClass {
  /** Number of classes: up to 2<sup>48</sup> bytes. */
  static final int COUNT = 8 + (48 - 11) * 8;

  /** The largest size that has a class. */
  static final long LARGEST = 1L << 48;

  private static final long QUANTUM = 256;
  private static final int LINEAR = 8;
  private static final int LINEAR_BITS = 11;

  private SizeClass() {}

  /** The smallest class that holds so many bytes. */
  static int of(long bytes) {
    if (bytes <= LINEAR * QUANTUM) {
      return bytes <= QUANTUM ? 0 : (int) ((bytes - 1) / QUANTUM);
    }
    int doubling = Long.SIZE - 1 - Long.numberOfLeadingZeros(bytes - 1);
    return (doubling - LINEAR_BITS) * LINEAR + (int) (bytes - 1 >> doubling - 3);
  }

  /** The size of a class in bytes. */
  static long bytes(int sizeClass) {
    if (sizeClass < LINEAR) {
      return (sizeClass + 1) * QUANTUM;
    }
    int doubling = LINEAR_BITS + (sizeClass - LINEAR) / LINEAR;
    return (LINEAR + sizeClass % LINEAR + 1L) << doubling - 3;
  }
}

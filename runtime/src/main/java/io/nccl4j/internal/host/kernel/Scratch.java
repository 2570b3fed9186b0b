package io.nccl4j.internal.host.kernel;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import org.jspecify.annotations.Nullable;

/**
 * The heap arrays through which kernels bounce one block of elements at a time. Each array is made
 * when first asked for and kept, so a warm kernel allocates nothing.
 *
 * <p>Not safe for concurrent use: every thread that calls kernels has its own.
 */
public final class Scratch {
  /** Elements in each array: two arrays of floats fit a 32 KiB cache beside what they came from. */
  public static final int BLOCK = 2048;

  /** Bytes of {@link #accumulator()} that results are gathered in. */
  public static final int ACCUMULATOR_BYTES = 8192;

  /** Bytes behind them, for one vector of any processor's. */
  private static final int END_BYTES = 256;

  private @Nullable MemorySegment accumulator;
  private @Nullable MemorySegment firstOperand;
  private @Nullable MemorySegment secondOperand;
  private byte @Nullable [] bytes;
  private short @Nullable [] shorts;
  private @Nullable MemorySegment shortBits;
  private @Nullable MemorySegment floatBits;
  private @Nullable MemorySegment doubleBits;
  private int @Nullable [] intAccumulator;
  private int @Nullable [] intOperand;
  private long @Nullable [] longAccumulator;
  private long @Nullable [] longOperand;
  private float @Nullable [] floatAccumulator;
  private float @Nullable [] floatOperand;
  private double @Nullable [] doubleAccumulator;
  private double @Nullable [] doubleOperand;

  /** Creates an empty scratch. */
  public Scratch() {}

  /**
   * {@value #ACCUMULATOR_BYTES} bytes outside the heap, aligned to a cache line, with room for one
   * vector behind them: kernels that read every operand from a segment keep one kind of segment,
   * which they run faster with. Freed with this object by the garbage collector.
   */
  public MemorySegment accumulator() {
    MemorySegment segment = accumulator;
    return segment != null ? segment : (accumulator = outside());
  }

  /** As much for a copy of an input, and of the result. */
  public MemorySegment firstOperand() {
    MemorySegment segment = firstOperand;
    return segment != null ? segment : (firstOperand = outside());
  }

  /** As much for a copy of another input. */
  public MemorySegment secondOperand() {
    MemorySegment segment = secondOperand;
    return segment != null ? segment : (secondOperand = outside());
  }

  private static MemorySegment outside() {
    return Arena.ofAuto().allocate(ACCUMULATOR_BYTES + END_BYTES, 64);
  }

  byte[] bytes() {
    byte[] array = bytes;
    return array != null ? array : (bytes = new byte[BLOCK]);
  }

  short[] shorts() {
    short[] array = shorts;
    return array != null ? array : (shorts = new short[BLOCK]);
  }

  int[] intAccumulator() {
    int[] array = intAccumulator;
    return array != null ? array : (intAccumulator = new int[BLOCK]);
  }

  int[] intOperand() {
    int[] array = intOperand;
    return array != null ? array : (intOperand = new int[BLOCK]);
  }

  long[] longAccumulator() {
    long[] array = longAccumulator;
    return array != null ? array : (longAccumulator = new long[BLOCK]);
  }

  long[] longOperand() {
    long[] array = longOperand;
    return array != null ? array : (longOperand = new long[BLOCK]);
  }

  float[] floatAccumulator() {
    float[] array = floatAccumulator;
    return array != null ? array : (floatAccumulator = new float[BLOCK]);
  }

  float[] floatOperand() {
    float[] array = floatOperand;
    return array != null ? array : (floatOperand = new float[BLOCK]);
  }

  double[] doubleAccumulator() {
    double[] array = doubleAccumulator;
    return array != null ? array : (doubleAccumulator = new double[BLOCK]);
  }

  double[] doubleOperand() {
    double[] array = doubleOperand;
    return array != null ? array : (doubleOperand = new double[BLOCK]);
  }

  // The same arrays as bits: loops over ints vectorise where loops over what they stand for do not.

  MemorySegment shortBits() {
    MemorySegment segment = shortBits;
    return segment != null ? segment : (shortBits = MemorySegment.ofArray(shorts()));
  }

  MemorySegment floatBits() {
    MemorySegment segment = floatBits;
    return segment != null ? segment : (floatBits = MemorySegment.ofArray(floatAccumulator()));
  }

  MemorySegment doubleBits() {
    MemorySegment segment = doubleBits;
    return segment != null ? segment : (doubleBits = MemorySegment.ofArray(doubleAccumulator()));
  }
}

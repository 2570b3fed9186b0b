package io.nccl4j.internal.host.kernel;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.fail;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.sun.management.ThreadMXBean;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Tier;
import io.nccl4j.internal.spi.SmallFloats;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.SplittableRandom;
import java.util.TreeSet;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.FieldSource;

/** The chosen and the generic kernels against {@link ReferenceFold}, bit by bit. */
@Tag("parallel")
@Tag("optimized")
class FoldKernelTest {
  private static final long SEED = Long.getLong("nccl4j.test.seed", System.nanoTime());
  private static final int[] INPUTS = {1, 2, 3, 4, 7, 16};
  private static final int[] SIZES = {0, 1, 2, 3, 5, 8, 15, 16, 17, 31, 63, 64, 65, 1000, 4097};
  private static final int LARGEST = 4097;
  private static final List<DataType> ALL = List.of(DataType.values());

  /** Types whose kernels are compared with the generic ones on much data. */
  static final List<DataType> COMPARED =
      Tier.choose(
          List.of(
              DataType.FLOAT32,
              DataType.FLOAT64,
              DataType.BFLOAT16,
              DataType.FLOAT8_E4M3,
              DataType.INT8,
              DataType.UINT32),
          ALL);

  /** Types whose kernels run until they are compiled, and allocate nothing then. */
  static final List<DataType> COUNTED =
      Tier.choose(
          List.of(DataType.FLOAT32, DataType.BFLOAT16, DataType.FLOAT8_E4M3, DataType.INT64), ALL);

  private static final byte CANARY = (byte) 0xa5;
  private static final int GUARD = 64;

  @BeforeAll
  static void printSeed() {
    System.out.println("FoldKernelTest: -Dnccl4j.test.seed=" + SEED + ", " + Kernels.description());
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void followsTheContract(DataType type) {
    SplittableRandom random = new SplittableRandom(SEED);
    Scratch scratch = new Scratch();
    for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
      for (int n : INPUTS) {
        Case given = new Case(type, kind, n, LARGEST, random);
        for (int m : new int[] {1, 2, n}) {
          for (int size : SIZES) {
            for (boolean inPlace : new boolean[] {false, true}) {
              if (!inPlace || m <= n) {
                given.check(Kernels.get(type, kind), m, 0, size, inPlace, 0, scratch);
                if (n < 4) {
                  given.checkClosable(Kernels.get(type, kind), m, 0, size, inPlace, 0, scratch);
                }
                given.check(Kernels.generic(type, kind), m, 0, size, inPlace, 0, scratch);
              }
            }
          }
        }
      }
    }
  }

  @ParameterizedTest
  @EnumSource(DataType.class)
  void resultDoesNotDependOnSplitOrAlignment(DataType type) {
    SplittableRandom random = new SplittableRandom(SEED + 1);
    Scratch scratch = new Scratch();
    for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
      Case given = new Case(type, kind, 2 + random.nextInt(3), LARGEST, random);
      for (int trial = 0; trial < 60; trial++) {
        int first = random.nextInt(LARGEST);
        int size = random.nextInt(Math.min(300, LARGEST - first) + 1);
        int m = 1 + random.nextInt(2);
        boolean inPlace = random.nextBoolean();
        int misalignment = random.nextInt(64);
        FoldKernel kernel = Kernels.get(type, kind);
        given.check(kernel, m, first, size, inPlace, misalignment, scratch);
        given.checkClosable(kernel, m, first, size, inPlace, misalignment, scratch);
      }
    }
  }

  @ParameterizedTest
  @FieldSource("COMPARED")
  void chosenAndGenericKernelsAgreeOnManyBits(DataType type) {
    // What lies beyond a mebibyte: some blocks, and less than a vector.
    try (Arena lasting = new LastingArena();
        Arena closable = Arena.ofShared()) {
      agreeOn(type, (1 << 20) / type.byteSize() + 3 * Scratch.BLOCK + 5, lasting);
      agreeOn(type, (1 << 20) / type.byteSize() + 1, closable);
    }
  }

  private static void agreeOn(DataType type, int elements, Arena arena) {
    long bytes = (long) elements * type.byteSize();
    SplittableRandom random = new SplittableRandom(SEED + 2);
    Scratch scratch = new Scratch();
    MemorySegment[] in = new MemorySegment[3];
    for (int k = 0; k < in.length; k++) {
      in[k] = arena.allocate(bytes + Long.BYTES, 64);
      for (long i = 0; i < bytes; i += Long.BYTES) {
        in[k].set(ValueLayout.JAVA_LONG, i, random.nextLong());
      }
    }
    MemorySegment[] chosen = {arena.allocate(bytes, 64)};
    MemorySegment[] generic = {arena.allocate(bytes, 64)};
    long[] zeros = new long[in.length];
    for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
      for (int n = 2; n <= in.length; n++) {
        Kernels.get(type, kind).fold(in, zeros, n, chosen, zeros, 1, elements, null, scratch);
        Kernels.generic(type, kind).fold(in, zeros, n, generic, zeros, 1, elements, null, scratch);
        long different = chosen[0].mismatch(generic[0]);
        if (different >= 0) {
          fail(type + " " + kind + " n=" + n + " differs at byte " + different);
        }
      }
    }
  }

  @ParameterizedTest
  @EnumSource(
      value = DataType.class,
      names = {"FLOAT16", "BFLOAT16", "FLOAT8_E4M3", "FLOAT8_E5M2"})
  void everyCodeAndEveryTieIsExact(DataType type) {
    ReferenceFold.Format format = ReferenceFold.format(type);
    int count = 1 << format.bits;
    Scratch scratch = new Scratch();
    FoldKernel sum = Kernels.get(type, ReduceOp.Kind.SUM);
    FoldKernel scaled = Kernels.get(type, ReduceOp.Kind.PRE_MUL_SUM);
    try (Arena arena = new LastingArena()) {
      MemorySegment[] in = {
        arena.allocate((long) count * type.byteSize(), 64),
        arena.allocate((long) count * type.byteSize(), 64)
      };
      MemorySegment[] out = {arena.allocate((long) count * type.byteSize(), 64)};
      long[] zeros = new long[2];
      for (int code = 0; code < count; code++) {
        set(in[0], type, code, code);
        // With this neighbour half of it leads to a tie, a little more or less to either side.
        set(in[1], type, code, code + 1);
      }
      sum.fold(in, zeros, 1, out, zeros, 1, count, null, scratch);
      for (int code = 0; code < count; code++) {
        assertEquals(
            format.encode(format.decode(code)), get(out[0], type, code), type + " code " + code);
      }
      for (double second : new double[] {0.5, 0.5 + 0x1p-20, 0.5 - 0x1p-20, 0.25, 8}) {
        long[] scalars = {Double.doubleToRawLongBits(0.5), Double.doubleToRawLongBits(second)};
        scaled.fold(in, zeros, 2, out, zeros, 1, count, scalars, scratch);
        for (int code = 0; code < count; code++) {
          long expected =
              ReferenceFold.fold(
                  type, ReduceOp.Kind.PRE_MUL_SUM, new long[] {code, code + 1}, scalars);
          assertEquals(expected, get(out[0], type, code), type + " code " + code + ", " + second);
        }
      }
    }
  }

  @Test
  void everyFloatRoundsToEightBitsByDefinition() {
    SplittableRandom random = new SplittableRandom(SEED + 3);
    for (SmallFloats.Float8 float8 : SmallFloats.Float8.values()) {
      ReferenceFold.Format format =
          float8 == SmallFloats.Float8.E4M3 ? ReferenceFold.E4M3 : ReferenceFold.E5M2;
      for (long upper = 0; upper < 1 << 19; upper++) {
        for (int lower : new int[] {0, 1, 0x1fff, random.nextInt(0x2000)}) {
          float value = Float.intBitsToFloat((int) (upper << 13) | lower);
          int expected = format.encode(value);
          int actual = float8.fromFloat(value) & 0xff;
          if (expected != actual) {
            assertEquals(expected, actual, float8 + " of " + value);
          }
        }
      }
    }
  }

  @Test
  void bfloat16RoundsByDefinition() {
    for (long upper = 0; upper < 1 << 16; upper++) {
      for (int lower : new int[] {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff}) {
        float value = Float.intBitsToFloat((int) (upper << 16) | lower);
        int expected = ReferenceFold.BFLOAT16.encode(value);
        int actual = SmallFloats.toBfloat16(value) & 0xffff;
        if (expected != actual) {
          assertEquals(expected, actual, () -> "bfloat16 of " + value);
        }
      }
    }
  }

  @ParameterizedTest
  @FieldSource("COUNTED")
  void allocatesNothingOnceWarm(DataType type) {
    ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
    Scratch scratch = new Scratch();
    int most = 300;
    // Wide vectors, and narrow ones.
    int[] sizes = {most, 48 / type.byteSize()};
    try (Arena arena = new LastingArena()) {
      MemorySegment[] in = new MemorySegment[4];
      MemorySegment[] out = new MemorySegment[4];
      for (int k = 0; k < in.length; k++) {
        in[k] = arena.allocate((long) most * type.byteSize(), 64);
        out[k] = arena.allocate((long) most * type.byteSize(), 64);
      }
      long[] zeros = new long[4];
      long[] scalars = new long[4];
      for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
        FoldKernel kernel = Kernels.get(type, kind);
        int calls = 20;
        long allocated = Long.MAX_VALUE;
        // How long compilation takes is up to the machine; that it ends up at nothing is not.
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (allocated > 0 && System.nanoTime() < deadline) {
          for (int i = 0; i < 2000; i++) {
            foldAll(kernel, in, out, zeros, scalars, sizes[i & 1], scratch);
          }
          long before = threads.getCurrentThreadAllocatedBytes();
          for (int i = 0; i < calls; i++) {
            foldAll(kernel, in, out, zeros, scalars, sizes[i & 1], scratch);
          }
          allocated = threads.getCurrentThreadAllocatedBytes() - before;
        }
        assertEquals(0, allocated, type + " " + kind + ": bytes in " + calls + " calls");
      }
    }
  }

  @Test
  void refusesRangesBeyondASegment() {
    Scratch scratch = new Scratch();
    try (Arena arena = new LastingArena()) {
      MemorySegment whole = arena.allocate(4096, 64);
      MemorySegment shorter = whole.asSlice(0, 4092);
      long[] zeros = new long[2];
      for (DataType type : new DataType[] {DataType.FLOAT32, DataType.BFLOAT16}) {
        FoldKernel kernel = Kernels.get(type, ReduceOp.Kind.SUM);
        long elements = 4096 / type.byteSize();
        for (int bad = 0; bad < 3; bad++) {
          MemorySegment[] in = {bad == 0 ? shorter : whole, bad == 1 ? shorter : whole};
          MemorySegment[] out = {bad == 2 ? shorter : whole};
          assertThrows(
              IndexOutOfBoundsException.class,
              () -> kernel.fold(in, zeros, 2, out, zeros, 1, elements, null, scratch));
        }
      }
    }
  }

  private static void foldAll(
      FoldKernel kernel,
      MemorySegment[] in,
      MemorySegment[] out,
      long[] zeros,
      long[] scalars,
      int elements,
      Scratch scratch) {
    for (int n = 1; n <= in.length; n++) {
      for (int m = 1; m <= 3; m++) {
        kernel.fold(in, zeros, n, out, zeros, m, elements, scalars, scratch);
        kernel.fold(in, zeros, n, out, zeros, m, n, scalars, scratch);
      }
    }
  }

  private static void set(MemorySegment segment, DataType type, long index, long raw) {
    long offset = index * type.byteSize();
    switch (type.byteSize()) {
      case 1 -> segment.set(ValueLayout.JAVA_BYTE, offset, (byte) raw);
      case 2 -> segment.set(ValueLayout.JAVA_SHORT_UNALIGNED, offset, (short) raw);
      case 4 -> segment.set(ValueLayout.JAVA_INT_UNALIGNED, offset, (int) raw);
      default -> segment.set(ValueLayout.JAVA_LONG_UNALIGNED, offset, raw);
    }
  }

  /** The raw element, zero-extended. */
  private static long get(MemorySegment segment, DataType type, long index) {
    long offset = index * type.byteSize();
    return switch (type.byteSize()) {
      case 1 -> segment.get(ValueLayout.JAVA_BYTE, offset) & 0xffL;
      case 2 -> segment.get(ValueLayout.JAVA_SHORT_UNALIGNED, offset) & 0xffffL;
      case 4 -> segment.get(ValueLayout.JAVA_INT_UNALIGNED, offset) & 0xffffffffL;
      default -> segment.get(ValueLayout.JAVA_LONG_UNALIGNED, offset);
    };
  }

  /** Inputs of one type for one reduction, and what they add up to. */
  private static final class Case {
    private final DataType type;
    private final ReduceOp.Kind kind;
    private final int n;
    private final byte[][] inputs;
    private final byte[] expected;
    private final long @Nullable [] scalars;

    Case(DataType type, ReduceOp.Kind kind, int n, int elements, SplittableRandom random) {
      this.type = type;
      this.kind = kind;
      this.n = n;
      scalars = kind == ReduceOp.Kind.PRE_MUL_SUM ? scalars(random) : null;
      inputs = new byte[n][elements * type.byteSize()];
      expected = new byte[elements * type.byteSize()];
      MemorySegment result = MemorySegment.ofArray(expected);
      long[] raw = new long[n];
      for (int i = 0; i < elements; i++) {
        for (int k = 0; k < n; k++) {
          set(MemorySegment.ofArray(inputs[k]), type, i, element(random));
          raw[k] = get(MemorySegment.ofArray(inputs[k]), type, i);
        }
        set(result, type, i, ReferenceFold.fold(type, kind, raw, scalars));
      }
    }

    private long[] scalars(SplittableRandom random) {
      long[] values = new long[n];
      for (int k = 0; k < n; k++) {
        values[k] =
            type.isFloatingPoint()
                ? Double.doubleToRawLongBits(random.nextDouble(-2, 2))
                : random.nextLong();
      }
      return values;
    }

    /** One third each: any bits, an edge of the type, and values whose sums are exact. */
    private long element(SplittableRandom random) {
      int bits = type.byteSize() * Byte.SIZE;
      int choice = random.nextInt(3);
      if (choice == 0) {
        return random.nextLong();
      }
      if (!type.isFloatingPoint()) {
        return choice == 1 ? (1L << bits - 1) + random.nextInt(-2, 2) : random.nextInt(-8, 8);
      }
      int fractionBits =
          switch (type) {
            case FLOAT64 -> 52;
            case FLOAT32 -> 23;
            case FLOAT16 -> 10;
            case BFLOAT16 -> 7;
            case FLOAT8_E4M3 -> 3;
            default -> 2;
          };
      long sign = random.nextLong() << bits - 1;
      long exponents = (1L << bits - 1 - fractionBits) - 1;
      long infinity = exponents << fractionBits;
      if (choice == 1) {
        long[] edges = {
          0,
          1,
          2,
          (1L << fractionBits) - 1,
          1L << fractionBits,
          infinity - 2,
          infinity - 1,
          infinity,
          infinity + 1,
          infinity + (1L << fractionBits - 1),
          (1L << bits - 1) - 1
        };
        return sign | edges[random.nextInt(edges.length)];
      }
      long near = (exponents >> 1) + random.nextInt(-2, 3) << fractionBits;
      return sign | near | random.nextLong() & (1L << fractionBits) - 1;
    }

    void check(
        FoldKernel kernel,
        int m,
        int first,
        int size,
        boolean inPlace,
        int misalignment,
        Scratch scratch) {
      try (Arena arena = new LastingArena()) {
        check(arena, kernel, m, first, size, inPlace, misalignment, scratch);
      }
    }

    /** In memory that its owner could close. */
    void checkClosable(
        FoldKernel kernel,
        int m,
        int first,
        int size,
        boolean inPlace,
        int misalignment,
        Scratch scratch) {
      try (Arena arena = Arena.ofShared()) {
        check(arena, kernel, m, first, size, inPlace, misalignment, scratch);
      }
    }

    private void check(
        Arena arena,
        FoldKernel kernel,
        int m,
        int first,
        int size,
        boolean inPlace,
        int misalignment,
        Scratch scratch) {
      int bytes = size * type.byteSize();
      int from = first * type.byteSize();
      MemorySegment[] in = new MemorySegment[n];
      MemorySegment[] guarded = new MemorySegment[n + m];
      long[] inOffset = new long[n];
      for (int k = 0; k < n; k++) {
        guarded[k] = arena.allocate(bytes + 2L * GUARD + misalignment, 64).fill(CANARY);
        MemorySegment.copy(
            inputs[k], from, guarded[k], ValueLayout.JAVA_BYTE, GUARD + misalignment, bytes);
        // Exactly as long as what may be read.
        in[k] = guarded[k].asSlice(misalignment, (long) GUARD + bytes);
        inOffset[k] = GUARD;
      }
      MemorySegment[] out = new MemorySegment[m];
      long[] outOffset = new long[m];
      for (int o = 0; o < m; o++) {
        if (inPlace) {
          // The last input first: an output must not be written before all inputs are read.
          out[o] = in[n - 1 - o];
        } else {
          guarded[n + o] = arena.allocate(bytes + 2L * GUARD + misalignment, 64).fill(CANARY);
          out[o] = guarded[n + o].asSlice(misalignment, (long) GUARD + bytes);
        }
        outOffset[o] = GUARD;
      }
      kernel.fold(in, inOffset, n, out, outOffset, m, size, scalars, scratch);
      byte[] wanted = Arrays.copyOfRange(expected, from, from + bytes);
      for (int o = 0; o < m; o++) {
        compare(wanted, out[o].asSlice(GUARD), kernel, m, size, inPlace);
      }
      for (int k = 0; k < n; k++) {
        if (!inPlace || k < n - m) {
          byte[] input = Arrays.copyOfRange(inputs[k], from, from + bytes);
          compare(input, in[k].asSlice(GUARD), kernel, m, size, inPlace);
        }
      }
      for (MemorySegment segment : guarded) {
        if (segment != null) {
          checkCanaries(segment, GUARD + misalignment, bytes);
        }
      }
    }

    private static void checkCanaries(MemorySegment segment, long start, long bytes) {
      for (long i = 0; i < segment.byteSize(); i = i + 1 == start ? start + bytes : i + 1) {
        if (segment.get(ValueLayout.JAVA_BYTE, i) != CANARY) {
          fail("wrote " + (i < start ? start - i : i - start - bytes + 1) + " bytes outside");
        }
      }
    }

    private void compare(
        byte[] wanted, MemorySegment actual, FoldKernel kernel, int m, int size, boolean inPlace) {
      long different = MemorySegment.ofArray(wanted).mismatch(actual);
      if (different < 0) {
        return;
      }
      int index = (int) (different / type.byteSize());
      assertArrayEquals(
          wanted,
          actual.toArray(ValueLayout.JAVA_BYTE),
          () ->
              String.format(
                  "%s %s n=%d m=%d size=%d inPlace=%s %s seed %d: element %d is %x, not %x",
                  type,
                  kind,
                  n,
                  m,
                  size,
                  inPlace,
                  kernel,
                  SEED,
                  index,
                  get(actual, type, index),
                  get(MemorySegment.ofArray(wanted), type, index)));
    }
  }

  /**
   * Wrapped memory is folded in vectors, too: that of an automatic arena where it lies, and that of
   * an arena which its owner could close by way of a copy outside the heap.
   */
  @ParameterizedTest
  @EnumSource(
      value = DataType.class,
      names = {"FLOAT32", "BFLOAT16", "INT64"})
  void wrappedMemoryIsFoldedInVectors(DataType type) throws Exception {
    assumeTrue(Kernels.description().startsWith("Vector"), Kernels::description);
    try (Arena closable = Arena.ofShared()) {
      assertEquals(Set.of("accumulator"), scratchUsedIn(Arena.ofAuto(), type));
      assertEquals(
          Set.of("accumulator", "firstOperand", "secondOperand"), scratchUsedIn(closable, type));
    }
  }

  /** Names of what a fold of three inputs made in its scratch. */
  private static Set<String> scratchUsedIn(Arena arena, DataType type) throws Exception {
    MemorySegment[] segments = {
      arena.allocate(4096, 64), arena.allocate(4096, 64), arena.allocate(4096, 64)
    };
    Scratch scratch = new Scratch();
    long[] zeros = new long[3];
    Kernels.get(type, ReduceOp.Kind.SUM)
        .fold(segments, zeros, 3, segments, zeros, 2, 4096 / type.byteSize(), null, scratch);
    Set<String> used = new TreeSet<>();
    for (Field field : Scratch.class.getDeclaredFields()) {
      field.setAccessible(true);
      if (!Modifier.isStatic(field.getModifiers()) && field.get(scratch) != null) {
        used.add(field.getName());
      }
    }
    return used;
  }

  @Test
  void shouldNoticeThatMemoryWasClosed() {
    Arena arena = Arena.ofShared();
    MemorySegment[] in = {arena.allocate(4096, 64), arena.allocate(4096, 64)};
    MemorySegment[] out = {arena.allocate(4096, 64)};
    FoldKernel kernel = Kernels.get(DataType.FLOAT32, ReduceOp.Kind.SUM);
    kernel.fold(in, new long[2], 2, out, new long[1], 1, 1024, null, new Scratch());
    arena.close();
    assertThrows(
        IllegalStateException.class,
        () -> kernel.fold(in, new long[2], 2, out, new long[1], 1, 1024, null, new Scratch()));
  }
}

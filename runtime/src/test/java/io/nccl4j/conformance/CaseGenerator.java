package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.conformance.Case.Memory;
import io.nccl4j.conformance.Case.Op;
import io.nccl4j.conformance.Case.Placement;
import io.nccl4j.conformance.Case.Reduction;
import io.nccl4j.conformance.Case.Values;
import java.util.ArrayList;
import java.util.List;
import java.util.SplittableRandom;
import org.jspecify.annotations.Nullable;

/** The cases of a layout and number of ranks; the same list for the same seed, in every process. */
final class CaseGenerator {
  private static final int[] ELEMENTS = {0, 1, 2, 3, 7, 63, 64, 65};

  /** Where protocols change or blocks end, in bytes. */
  private static final int[] EDGES = {256, 1 << 10, 1144, 1536, 64 << 10, 512 << 10};

  private static final int SHORT_BYTES = 1536;
  private static final int LONG_BYTES = 512 << 10;
  private static final int EAGER_BYTES = 256;

  /** What buffers can be. */
  private static final Memory[] BUFFERS = {
    Memory.ALLOCATED, Memory.WRAPPED_SHARED, Memory.WRAPPED_AUTO, Memory.MIXED
  };

  private static final int SIZES = ELEMENTS.length + 3 * EDGES.length + 2;

  private final RankLayout layout;
  private final int nranks;
  private final SplittableRandom random;
  private final List<Case> cases = new ArrayList<>();
  private int turn;

  private CaseGenerator(RankLayout layout, int nranks) {
    this.layout = layout;
    this.nranks = nranks;
    this.random = new SplittableRandom(TestBackend.SEED + layout.ordinal() * 100L + nranks);
  }

  /**
   * The cases of the default run. The numbers of ranks share them out: a layout that runs with 2, 3
   * and 4 ranks has every type with every reduction at short, middle and long sizes, and every
   * operation at every short and middle size. {@link #all} has the product.
   */
  static List<Case> sample(RankLayout layout, int nranks) {
    CaseGenerator generator = new CaseGenerator(layout, nranks);
    generator.addReductions();
    generator.addSizes();
    generator.addArrays();
    return List.copyOf(generator.cases);
  }

  /** The product of operations, types, reductions and sizes; everything else takes turns. */
  static List<Case> all(RankLayout layout, int nranks) {
    CaseGenerator generator = new CaseGenerator(layout, nranks);
    for (Op op : Op.values()) {
      for (DataType type : DataType.values()) {
        for (int size = 0; size < SIZES; size++) {
          for (int kind = 0; kind < (op.reduces() ? 6 : 1); kind++) {
            generator.add(op, type, generator.reduction(kind), bytes(size, type));
          }
        }
      }
    }
    generator.addArrays();
    return List.copyOf(generator.cases);
  }

  /**
   * Collectives that several ranks of a host carry to other hosts, in windows, on each way that
   * there is: around the sizes where ways change, and beyond what is under way at a time.
   */
  static List<Case> large(RankLayout layout, int nranks) {
    CaseGenerator generator = new CaseGenerator(layout, nranks);
    DataType[] types = {
      DataType.FLOAT32, DataType.BFLOAT16, DataType.INT8, DataType.FLOAT64, DataType.FLOAT8_E4M3
    };
    for (int size : new int[] {600, 1 << 10, 32 << 10, 128 << 10, 512 << 10}) {
      for (Op op : new Op[] {Op.ALL_REDUCE, Op.REDUCE, Op.REDUCE_SCATTER, Op.REDUCE_SCATTER_V}) {
        for (int kind = 0; kind < 6; kind++) {
          if (op == Op.ALL_REDUCE || (kind + generator.turn) % 3 == 0) {
            DataType type = types[generator.turn % types.length];
            int shift = generator.random.nextInt(-1, 2) * type.byteSize();
            generator.add(op, type, generator.reduction(kind), size + shift);
          }
          generator.turn++;
        }
      }
    }
    int longer = (3 << 20) + 1000;
    generator.add(Op.ALL_REDUCE, DataType.FLOAT32, Reduction.SUM, longer);
    generator.add(Op.ALL_REDUCE, DataType.FLOAT64, Reduction.AVG, longer);
    generator.add(Op.ALL_REDUCE, DataType.INT64, Reduction.SUM, 3 * longer);
    generator.add(Op.ALL_REDUCE, DataType.FLOAT32, Reduction.SCALED, longer);
    generator.add(Op.ALL_REDUCE, DataType.FLOAT64, Reduction.SCALED, 128 << 10);
    generator.add(Op.REDUCE, DataType.INT8, Reduction.SCALED, 512 << 10);
    generator.add(Op.REDUCE_SCATTER, DataType.INT32, Reduction.SCALED, longer);
    generator.add(Op.REDUCE_SCATTER, DataType.FLOAT32, Reduction.PROD, longer);
    generator.add(Op.BROADCAST, DataType.FLOAT32, Reduction.SUM, 2000);
    generator.add(Op.BROADCAST, DataType.FLOAT32, Reduction.SUM, longer);
    generator.add(Op.ALL_GATHER, DataType.INT8, Reduction.SUM, 601);
    generator.add(Op.ALL_GATHER, DataType.INT8, Reduction.SUM, longer + 1);
    return List.copyOf(generator.cases);
  }

  private void addReductions() {
    for (int length = 0; length < 3; length++) {
      for (DataType type : DataType.values()) {
        for (int kind = 0; kind < 6; kind++) {
          int deal = type.ordinal() + kind + length + layout.ordinal();
          boolean mine =
              switch (nranks) {
                case 1 -> deal % 3 == 0;
                case 8 -> deal % 4 == 0 && length < 2;
                default -> deal % 3 == nranks % 3;
              };
          if (mine) {
            add(op(turn++ % 4), type, reduction(kind), someBytes(length, type));
          }
        }
      }
    }
  }

  private void addSizes() {
    for (Op op : Op.values()) {
      for (int size = 0; size < SIZES; size++) {
        int deal = op.ordinal() + size + nranks + layout.ordinal();
        DataType type = DataType.values()[turn++ % DataType.values().length];
        int bytes = bytes(size, type);
        boolean mine =
            switch (nranks) {
              case 8 -> deal % 5 == 0 && bytes < LONG_BYTES / 2;
              default -> deal % (bytes < LONG_BYTES / 2 ? 3 : 4) == 0;
            };
        if (bytes > 4 * LONG_BYTES) {
          mine = nranks == 2 && (op == Op.ALL_REDUCE || op == Op.ALL_GATHER || op == Op.RING);
        }
        if (mine) {
          add(op, type, reduction(random.nextInt(6)), bytes);
        }
      }
    }
  }

  /** Calls on arrays, each of which waits for the other ranks: not for one thread. */
  private void addArrays() {
    if (layout == RankLayout.ONE_THREAD) {
      return;
    }
    for (Op op : Op.values()) {
      for (int length = -2; length < 3; length++) {
        DataType type = DataType.values()[turn++ % DataType.values().length];
        int bytes =
            length < 0
                ? ELEMENTS[random.nextInt(ELEMENTS.length)] * type.byteSize()
                : someBytes(length, type);
        if (nranks < 8 || length < 1) {
          add(op, type, reduction(random.nextInt(6)), bytes, Memory.ARRAYS);
        }
      }
    }
    for (DataType type : DataType.values()) {
      add(Op.ALL_REDUCE, type, reduction(turn++ % 6), someBytes(0, type), Memory.ARRAYS);
    }
  }

  private static Op op(int index) {
    return Op.values()[index];
  }

  private Reduction reduction(int kind) {
    return kind < 5 ? Reduction.values()[kind] : Reduction.values()[5 + random.nextInt(3)];
  }

  private int someBytes(int length, DataType type) {
    int size = type.byteSize();
    return switch (length) {
      case 0 -> random.nextInt(1, SHORT_BYTES / size + 1) * size;
      case 1 -> random.nextInt(SHORT_BYTES / size + 1, (64 << 10) / size) * size;
      default -> (LONG_BYTES / size + random.nextInt(-2, 5000)) * size;
    };
  }

  /** The size with this index, 0 to {@link #SIZES}, in bytes. */
  private static int bytes(int index, DataType type) {
    int size = type.byteSize();
    if (index < ELEMENTS.length) {
      return ELEMENTS[index] * size;
    }
    int edge = index - ELEMENTS.length;
    if (edge < 3 * EDGES.length) {
      return (EDGES[edge / 3] / size + edge % 3 - 1) * size;
    }
    return edge == 3 * EDGES.length ? (1 << 20) + 13 * size : 8 << 20;
  }

  private void add(Op op, DataType type, Reduction reduction, int bytes) {
    add(op, type, reduction, bytes, null);
  }

  private void add(Op op, DataType type, Reduction reduction, int bytes, @Nullable Memory given) {
    int count = bytes / type.byteSize();
    boolean host = TestBackend.BACKEND == Backend.HOST;
    if (op == Op.BARRIER && count > 3) {
      return;
    }
    if (!host && nranks == 1 && op.reduces() && reduction.scaled() && isFloat8(type)) {
      // NCCL refuses it.
      return;
    }
    if (op == Op.EAGER_PAIRS) {
      count = Math.min(count, EAGER_BYTES / type.byteSize());
    }
    if (op.holdsBlockPerRank() && count > 100) {
      count /= nranks;
    }
    int root = random.nextBoolean() ? 0 : nranks - 1;
    Placement placement = pick(Placement.values());
    Memory memory = given != null ? given : host ? pick(BUFFERS) : Memory.ALLOCATED;
    cases.add(
        new Case(
            cases.size(),
            op,
            type,
            reduction,
            nranks,
            count,
            root,
            placement,
            memory,
            pick(Values.values()),
            random.nextInt(2) * random.nextInt(1, 8),
            random.nextInt(4) == 0,
            random.nextLong()));
  }

  private static boolean isFloat8(DataType type) {
    return type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2;
  }

  private <T> T pick(T[] values) {
    return values[random.nextInt(values.length)];
  }
}

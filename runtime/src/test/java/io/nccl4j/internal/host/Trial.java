package io.nccl4j.internal.host;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.Arrays;

/**
 * One operation of one rank with everything that follows from a few numbers all ranks know: what it
 * puts in and what must come out, to the last element that must stay as it was.
 *
 * @param salt changes values, the counts of the v-forms and the root from trial to trial
 */
record Trial(Op op, int nranks, int rank, int count, int salt) {
  /**
   * Every operation of a communicator; {@code SEND_RECV} is one group, from each rank to the next.
   */
  enum Op {
    ALL_REDUCE,
    BROADCAST,
    REDUCE,
    ALL_GATHER,
    REDUCE_SCATTER,
    ALL_TO_ALL,
    GATHER,
    SCATTER,
    ALL_GATHER_V,
    REDUCE_SCATTER_V,
    ALL_TO_ALL_V,
    GATHER_V,
    SCATTER_V,
    SEND_RECV,
    BARRIER
  }

  /** What output elements hold before, and after if they are nobody's target. */
  private static final int UNTOUCHED = 0x5a5a5a5a;

  private static final int GAP = 3;

  private int root() {
    return Math.floorMod(salt, nranks);
  }

  /** Elements that {@code from} has for {@code to} in allToAllV; every fourth pair has none. */
  private int part(int from, int to) {
    return (int) ((long) Math.floorMod(from * 7 + to * 3 + salt, 4) * count / 3);
  }

  /** Elements of a rank in the other v-forms; every fourth rank has none. */
  private int part(int of) {
    return part(of, 0);
  }

  private long[] parts() {
    long[] parts = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      parts[k] = part(k);
    }
    return parts;
  }

  /** Places for blocks, in reverse order, with gaps. */
  private static long[] places(long[] counts) {
    long[] places = new long[counts.length];
    long at = 0;
    for (int k = counts.length; --k >= 0; ) {
      places[k] = at;
      at += counts[k] + GAP;
    }
    return places;
  }

  private static int extent(long[] counts) {
    long sum = 0;
    for (long c : counts) {
      sum += c + GAP;
    }
    return (int) sum;
  }

  private static int sum(long[] counts) {
    return extent(counts) - GAP * counts.length;
  }

  private long[] sends(int from) {
    long[] counts = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      counts[k] = part(from, k);
    }
    return counts;
  }

  private long[] receives(int to) {
    long[] counts = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      counts[k] = part(k, to);
    }
    return counts;
  }

  private int value(int of, long index) {
    int h = (of + 1) * 0x9e3779b1 + (int) index * 0x85ebca6b + salt * 0xc2b2ae35;
    return h ^ h >>> 15;
  }

  private int sumOfValues(long index) {
    int sum = 0;
    for (int k = 0; k < nranks; k++) {
      sum += value(k, index);
    }
    return sum;
  }

  /** Elements of the send buffer. */
  int inputLength() {
    return switch (op) {
      case ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, GATHER, SEND_RECV -> count;
      case REDUCE_SCATTER, ALL_TO_ALL, SCATTER -> nranks * count;
      case ALL_GATHER_V, GATHER_V -> part(rank);
      case REDUCE_SCATTER_V -> sum(parts());
      case ALL_TO_ALL_V -> extent(sends(rank));
      case SCATTER_V -> extent(parts());
      case BARRIER -> 0;
    };
  }

  /** Elements of the receive buffer. */
  int outputLength() {
    return switch (op) {
      case ALL_REDUCE, BROADCAST, REDUCE, REDUCE_SCATTER, SCATTER, SEND_RECV -> count;
      case ALL_GATHER, ALL_TO_ALL, GATHER -> nranks * count;
      case ALL_GATHER_V, GATHER_V -> extent(parts());
      case REDUCE_SCATTER_V, SCATTER_V -> part(rank);
      case ALL_TO_ALL_V -> extent(receives(rank));
      case BARRIER -> 0;
    };
  }

  /** Fills both buffers. */
  void prepare(DeviceBuffer in, DeviceBuffer out) {
    int[] values = new int[inputLength()];
    for (int i = 0; i < values.length; i++) {
      values[i] = value(rank, i);
    }
    in.copyFrom(values);
    int[] before = new int[outputLength()];
    Arrays.fill(before, UNTOUCHED);
    out.copyFrom(before);
  }

  /** Queues the operation. */
  void issue(Communicator c, DeviceBuffer in, DeviceBuffer out, Stream s) {
    DataType type = DataType.INT32;
    ReduceOp plus = ReduceOp.SUM;
    int root = root();
    long[] parts = parts();
    switch (op) {
      case ALL_REDUCE -> c.allReduce(in, out, count, type, plus, s);
      case BROADCAST -> c.broadcast(in, out, count, type, root, s);
      case REDUCE -> c.reduce(in, out, count, type, plus, root, s);
      case ALL_GATHER -> c.allGather(in, out, count, type, s);
      case REDUCE_SCATTER -> c.reduceScatter(in, out, count, type, plus, s);
      case ALL_TO_ALL -> c.allToAll(in, out, count, type, s);
      case GATHER -> c.gather(in, out, count, type, root, s);
      case SCATTER -> c.scatter(in, out, count, type, root, s);
      case ALL_GATHER_V -> c.allGatherV(in, out, parts, places(parts), type, s);
      case REDUCE_SCATTER_V -> c.reduceScatterV(in, out, parts, type, plus, s);
      case ALL_TO_ALL_V -> {
        long[] sends = sends(rank);
        long[] receives = receives(rank);
        c.allToAllV(in, sends, places(sends), out, receives, places(receives), type, s);
      }
      case GATHER_V -> c.gatherV(in, parts[rank], out, parts, places(parts), type, root, s);
      case SCATTER_V -> c.scatterV(in, parts, places(parts), out, parts[rank], type, root, s);
      case SEND_RECV ->
          Group.run(
              () -> {
                c.send(in, count, type, (rank + 1) % nranks, s);
                c.recv(out, count, type, (rank + nranks - 1) % nranks, s);
              });
      case BARRIER -> c.barrier(s);
    }
  }

  /** What the receive buffer must hold when the operation is complete. */
  int[] expected() {
    int[] out = new int[outputLength()];
    Arrays.fill(out, UNTOUCHED);
    boolean isRoot = rank == root();
    switch (op) {
      case ALL_REDUCE -> sums(out, 0);
      case REDUCE -> {
        if (isRoot) {
          sums(out, 0);
        }
      }
      case BROADCAST -> block(out, 0, root(), 0, count);
      case REDUCE_SCATTER -> sums(out, (long) rank * count);
      case REDUCE_SCATTER_V -> {
        long before = 0;
        for (int k = 0; k < rank; k++) {
          before += part(k);
        }
        sums(out, before);
      }
      case SCATTER -> block(out, 0, root(), (long) rank * count, count);
      case SCATTER_V -> block(out, 0, root(), places(parts())[rank], part(rank));
      case SEND_RECV -> block(out, 0, (rank + nranks - 1) % nranks, 0, count);
      case BARRIER -> {}
      default -> {
        boolean receives = isRoot || op != Op.GATHER && op != Op.GATHER_V;
        for (int k = 0; receives && k < nranks; k++) {
          gathered(out, k);
        }
      }
    }
    return out;
  }

  private void gathered(int[] out, int k) {
    switch (op) {
      case ALL_GATHER, GATHER -> block(out, (long) k * count, k, 0, count);
      case ALL_TO_ALL -> block(out, (long) k * count, k, (long) rank * count, count);
      case ALL_GATHER_V, GATHER_V -> block(out, places(parts())[k], k, 0, part(k));
      default -> block(out, places(receives(rank))[k], k, places(sends(k))[rank], part(k, rank));
    }
  }

  private void sums(int[] out, long from) {
    for (int i = 0; i < out.length; i++) {
      out[i] = sumOfValues(from + i);
    }
  }

  private void block(int[] out, long to, int of, long from, int length) {
    for (int i = 0; i < length; i++) {
      out[(int) to + i] = value(of, from + i);
    }
  }

  /** Checks the receive buffer. */
  void check(DeviceBuffer out) {
    int[] found = new int[outputLength()];
    out.copyTo(found);
    assertArrayEquals(expected(), found, this::toString);
  }
}

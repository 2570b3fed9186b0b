package io.nccl4j.conformance;

import io.nccl4j.ArrayCalls;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.ReduceOp;
import io.nccl4j.conformance.Case.Op;
import io.nccl4j.conformance.Case.Placement;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Array;
import java.util.Arrays;

/**
 * One rank's part of a case on arrays: as long as the call wants them, one of them where it is in
 * place.
 */
final class ArrayCase<A> {
  private final Case c;
  private final Oracle oracle;
  private final Communicator communicator;
  private final int rank;
  private final ArrayCalls<A> calls;
  private final boolean inPlace;
  private final A send;
  private final A recv;

  private ArrayCase(Case c, Oracle oracle, Communicator communicator, Class<A> kind) {
    this.c = c;
    this.oracle = oracle;
    this.communicator = communicator;
    this.rank = communicator.rank();
    this.calls = communicator.arrays(kind, c.type());
    this.inPlace =
        switch (c.op()) {
          case BROADCAST -> true;
          case ALL_REDUCE, REDUCE, ALL_GATHER -> c.placement() == Placement.IN_PLACE;
          default -> false;
        };
    int sent = oracle.sends(rank) ? oracle.sendLength(rank) : 0;
    int received = oracle.receives(rank) ? oracle.recvLength(rank) : 0;
    send = array(kind, inPlace ? Math.max(sent, received) : sent);
    recv = array(kind, received);
  }

  static ArrayCase<?> of(Case c, Oracle oracle, Communicator communicator) {
    return switch (c.type()) {
      case INT8, UINT8, FLOAT8_E4M3, FLOAT8_E5M2 ->
          new ArrayCase<>(c, oracle, communicator, byte[].class);
      case FLOAT16, BFLOAT16 -> new ArrayCase<>(c, oracle, communicator, short[].class);
      case INT32, UINT32 -> new ArrayCase<>(c, oracle, communicator, int[].class);
      case INT64, UINT64 -> new ArrayCase<>(c, oracle, communicator, long[].class);
      case FLOAT32 -> new ArrayCase<>(c, oracle, communicator, float[].class);
      case FLOAT64 -> new ArrayCase<>(c, oracle, communicator, double[].class);
    };
  }

  private static <A> A array(Class<A> kind, int length) {
    return kind.cast(Array.newInstance(kind.getComponentType(), length));
  }

  int sendBytes() {
    return Array.getLength(send) * c.type().byteSize();
  }

  int recvBytes() {
    return Array.getLength(recv) * c.type().byteSize();
  }

  /** Where this rank's input lies in what it sends from. */
  int sendStart() {
    boolean block = inPlace && c.op() == Op.ALL_GATHER;
    return block ? rank * c.count() * c.type().byteSize() : 0;
  }

  boolean isInPlace() {
    return inPlace;
  }

  void set(int i, byte[] bytes) {
    segment(i).copyFrom(MemorySegment.ofArray(bytes));
  }

  byte[] get(int i) {
    MemorySegment segment = segment(i);
    byte[] bytes = new byte[(int) segment.byteSize()];
    MemorySegment.ofArray(bytes).copyFrom(segment);
    return bytes;
  }

  private MemorySegment segment(int i) {
    return switch ((Object) (i == 0 ? send : recv)) {
      case byte[] a -> MemorySegment.ofArray(a);
      case short[] a -> MemorySegment.ofArray(a);
      case int[] a -> MemorySegment.ofArray(a);
      case long[] a -> MemorySegment.ofArray(a);
      case float[] a -> MemorySegment.ofArray(a);
      case double[] a -> MemorySegment.ofArray(a);
      default -> throw new AssertionError(c);
    };
  }

  void call(ReduceOp op) {
    int root = c.root();
    int n = c.nranks();
    boolean nothingForUnused = (c.seed() & 2) == 0;
    A out = oracle.sends(rank) || !nothingForUnused ? send : null;
    A in = oracle.receives(rank) || !nothingForUnused ? recv : null;
    switch (c.op()) {
      case ALL_REDUCE -> {
        if (inPlace) {
          calls.allReduce(send, op);
        } else {
          calls.allReduce(out, in, op);
        }
      }
      case REDUCE -> {
        if (inPlace) {
          calls.reduce(send, op, root);
        } else {
          calls.reduce(out, in, op, root);
        }
      }
      case REDUCE_SCATTER -> calls.reduceScatter(out, in, op);
      case REDUCE_SCATTER_V -> calls.reduceScatterV(out, in, longs(oracle.resultCounts), op);
      case BROADCAST -> calls.broadcast(send, root);
      case ALL_GATHER -> {
        if (inPlace) {
          calls.allGather(send);
        } else {
          calls.allGather(out, in);
        }
      }
      case ALL_TO_ALL -> calls.allToAll(out, in);
      case GATHER -> calls.gather(out, in, root);
      case SCATTER -> calls.scatter(out, in, root);
      case ALL_GATHER_V -> {
        long[] counts = column(oracle.counts);
        long[] places = column(oracle.to);
        if (follow(counts, places)) {
          calls.allGatherV(out, in, counts);
        } else {
          calls.allGatherV(out, in, counts, places);
        }
      }
      case ALL_TO_ALL_V -> {
        long[] sent = longs(oracle.counts[rank]);
        long[] from = longs(oracle.from[rank]);
        long[] received = column(oracle.counts);
        long[] to = column(oracle.to);
        if (follow(sent, from) && follow(received, to)) {
          calls.allToAllV(out, sent, in, received);
        } else {
          calls.allToAllV(out, sent, from, in, received, to);
        }
      }
      case GATHER_V -> {
        long[] counts = rank == root ? column(oracle.counts) : null;
        long[] places = rank == root ? column(oracle.to) : null;
        if (follow(counts, places)) {
          calls.gatherV(out, in, counts, root);
        } else {
          calls.gatherV(out, in, counts, places, root);
        }
      }
      case SCATTER_V -> {
        long[] counts = rank == root ? longs(oracle.counts[rank]) : null;
        long[] places = rank == root ? longs(oracle.from[rank]) : null;
        if (follow(counts, places)) {
          calls.scatterV(out, counts, in, root);
        } else {
          calls.scatterV(out, counts, places, in, root);
        }
      }
      case RING -> calls.sendRecv(send, (rank + 1) % n, recv, (rank + n - 1) % n);
      case EXCHANGE -> {
        for (int k = 0; k < n; k++) {
          exchange((rank + k) % n, (rank + n - k) % n);
        }
      }
      case PAIRS, EAGER_PAIRS -> pair(rank ^ 1);
      case BARRIER -> communicator.barrier();
    }
  }

  /** Parts of arrays, which calls do not take. */
  @SuppressWarnings("unchecked")
  private void exchange(int to, int from) {
    Class<A> kind = (Class<A>) send.getClass();
    A out = array(kind, oracle.counts[rank][to]);
    A in = array(kind, oracle.counts[from][rank]);
    System.arraycopy(send, oracle.from[rank][to], out, 0, Array.getLength(out));
    calls.sendRecv(out, to, in, from);
    System.arraycopy(in, 0, recv, oracle.to[from][rank], Array.getLength(in));
  }

  private void pair(int peer) {
    if (peer >= c.nranks()) {
      return;
    }
    if (c.op() == Op.EAGER_PAIRS && TestBackend.BACKEND == Backend.CUDA) {
      // NCCL sends nothing ahead of the receiver.
      calls.sendRecv(send, peer, recv, peer);
      return;
    }
    boolean sendFirst = rank < peer || c.op() == Op.EAGER_PAIRS;
    if (sendFirst) {
      calls.send(send, peer);
    }
    calls.recv(recv, peer);
    if (!sendFirst) {
      calls.send(send, peer);
    }
  }

  private static boolean follow(long[] counts, long[] places) {
    if (counts == null) {
      return true;
    }
    long[] expected = new long[counts.length];
    for (int k = 1; k < counts.length; k++) {
      expected[k] = expected[k - 1] + counts[k - 1];
    }
    return Arrays.equals(expected, places);
  }

  private long[] column(int[][] matrix) {
    return Arrays.stream(matrix).mapToLong(row -> row[rank]).toArray();
  }

  private static long[] longs(int[] ints) {
    return Arrays.stream(ints).asLongStream().toArray();
  }
}

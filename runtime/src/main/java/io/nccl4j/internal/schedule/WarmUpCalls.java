package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.WarmUp.Operation;
import java.util.Set;
import java.util.function.ObjIntConsumer;

/** The calls that one rank makes for a plan: each operation with each type, reduction and size. */
final class WarmUpCalls {
  private static final Set<ReduceOp.Kind> SUM_ONLY = Set.of(ReduceOp.Kind.SUM);

  private final WarmUp plan;
  private final Communicator communicator;
  private final int rank;
  private final int nranks;

  /** A call that lacks nothing but who makes it, and where. */
  interface Call {
    void make(Calls by, DeviceBuffer send, DeviceBuffer recv, Stream stream);
  }

  WarmUpCalls(WarmUp plan, Communicator communicator) {
    this.plan = plan;
    this.communicator = communicator;
    this.rank = communicator.rank();
    this.nranks = communicator.nranks();
  }

  /**
   * Goes through the calls, in the same order on every rank.
   *
   * @param which the operations, all or some of the plan's
   * @param use gets each call, and how often it is to be made
   */
  void forEach(Set<Operation> which, ObjIntConsumer<Call> use) {
    for (Operation operation : which) {
      if (operation == Operation.BARRIER) {
        use.accept(collective(operation, DataType.INT8, ReduceOp.SUM, 0, 0), plan.iterations(0));
        continue;
      }
      for (DataType type : plan.types()) {
        for (ReduceOp.Kind kind : operation.reduces() ? plan.reductions() : SUM_ONLY) {
          for (long size : plan.sizes()) {
            if (operation == Operation.SEND_RECV) {
              forEachPeer(type, size, use);
            } else {
              long whole = elements(size, size, type);
              long block = elements(size, size / nranks, type);
              use.accept(
                  collective(operation, type, reduceOp(kind), whole, block), plan.iterations(size));
            }
          }
        }
      }
    }
  }

  private static ReduceOp reduceOp(ReduceOp.Kind kind) {
    return switch (kind) {
      case SUM -> ReduceOp.SUM;
      case PROD -> ReduceOp.PROD;
      case MAX -> ReduceOp.MAX;
      case MIN -> ReduceOp.MIN;
      case AVG -> ReduceOp.AVG;
      case PRE_MUL_SUM -> ReduceOp.preMulSum(2);
    };
  }

  /** The elements of a part of {@code size} bytes: one at least, unless there is nothing. */
  private static long elements(long size, long part, DataType type) {
    return size == 0 ? 0 : Math.max(1, part / type.byteSize());
  }

  private Call collective(Operation operation, DataType type, ReduceOp op, long whole, long block) {
    long[] counts = new long[nranks];
    long[] places = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      counts[k] = block;
      places[k] = k * block;
    }
    return (by, send, recv, stream) ->
        by.collective(
            communicator, operation, type, op, whole, block, counts, places, send, recv, stream);
  }

  private void forEachPeer(DataType type, long size, ObjIntConsumer<Call> use) {
    int times = Math.max(1, plan.iterations(size) / Math.max(1, nranks - 1));
    long count = elements(size, size, type);
    for (int distance = nranks == 1 ? 0 : 1; distance < Math.max(1, nranks); distance++) {
      int to = (rank + distance) % nranks;
      int from = (rank + nranks - distance) % nranks;
      int target = areConnected(rank, to) ? to : -1;
      int source = areConnected(rank, from) ? from : -1;
      use.accept(
          (by, send, recv, stream) ->
              by.exchange(communicator, send, recv, count, type, target, source, stream),
          times);
    }
  }

  private boolean areConnected(int one, int other) {
    return plan.peers().isEmpty() || plan.peers().contains(one) || plan.peers().contains(other);
  }
}

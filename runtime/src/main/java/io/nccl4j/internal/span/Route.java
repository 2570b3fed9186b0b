package io.nccl4j.internal.span;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;

/** How a reduction's data goes from host to host. All fold in the order of the ranks. */
enum Route {
  /** Each host that needs the result gets all inputs and folds them: one latency. */
  GATHER,

  /** Hosts take turns: one gets all inputs of a window, folds them and sends out the result. */
  SCATTER,

  /**
   * Each host folds its inputs into what it got from the host before and passes that on; the last
   * one has the result, which comes back the same way. For each host once the bytes of a vector,
   * however many ranks it has.
   */
  CHAIN;

  /** Below, a second latency costs more than what it saves. */
  private static final long SCATTER_BYTES = 512 << 10;

  private static final long CHAIN_BYTES = 128 << 10;

  /** The same on every rank: it looks only at what the signature covers. */
  static Route of(Operation operation, DataType type, ReduceOp.Kind kind, long bytes, Hosts hosts) {
    if (!operation.reducing()) {
      return GATHER;
    }
    if (bytes >= CHAIN_BYTES
        && hosts.mostRanks() > 1
        && hosts.isContiguous()
        && carries(type, kind)) {
      return CHAIN;
    }
    boolean isForAll = operation.receivers() == Party.ALL && operation.sent() == Shape.ONE;
    return isForAll && bytes >= SCATTER_BYTES ? SCATTER : GATHER;
  }

  /**
   * Whether a partial result loses nothing when it is written as an element: the type of
   * accumulation is that of the elements, and nothing is left to be done at the end.
   */
  private static boolean carries(DataType type, ReduceOp.Kind kind) {
    return switch (kind) {
      case MIN, MAX -> true;
      case SUM, PROD, PRE_MUL_SUM ->
          switch (type) {
            case INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT32, FLOAT64 -> true;
            case FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 -> false;
          };
      case AVG -> false;
    };
  }
}

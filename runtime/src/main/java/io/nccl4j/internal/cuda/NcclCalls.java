package io.nccl4j.internal.cuda;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.spi.Scalars;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Operations as calls of NCCL. What NCCL has no call for, or not in the version at hand, is a group
 * of calls that it has.
 */
final class NcclCalls {
  private static final int SUM = 0;
  private static final int HOST_IMMEDIATE = 1;
  private static final int DEVICE = 0;

  private NcclCalls() {}

  /** Issues one work; returns NCCL's first result that is a failure, or its last one. */
  static int issue(CudaWork w, MemorySegment comm, CudaStream on) {
    MemorySegment stream = on.handle();
    int type = w.type.ordinal();
    int op = plainOp(w);
    if (w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      int result = createScaledSum(w, comm);
      if (NcclResults.isFailure(result)) {
        return result;
      }
      op = w.createdOp;
    }
    return switch (w.kind) {
      case ALL_REDUCE ->
          Nccl.ncclAllReduce(at(w.send), at(w.recv), w.count, type, op, comm, stream);
      case BROADCAST ->
          Nccl.ncclBroadcast(
              at(w.send == null ? w.recv : w.send),
              at(w.recv),
              w.count,
              type,
              w.root,
              comm,
              stream);
      case REDUCE ->
          Nccl.ncclReduce(at(w.send), at(w.recv), w.count, type, op, w.root, comm, stream);
      case ALL_GATHER -> Nccl.ncclAllGather(at(w.send), at(w.recv), w.count, type, comm, stream);
      case REDUCE_SCATTER ->
          Nccl.ncclReduceScatter(at(w.send), at(w.recv), w.count, type, op, comm, stream);
      case PUT_SIGNAL, SIGNAL, WAIT_SIGNALS -> NcclOneSided.issue(w, comm, stream);
      case SEND -> Nccl.ncclSend(at(w.send), w.count, type, w.root, comm, stream);
      case RECV -> Nccl.ncclRecv(at(w.recv), w.count, type, w.root, comm, stream);
      case BARRIER -> {
        MemorySegment flag = w.communicator.barrierFlag();
        yield Nccl.ncclAllReduce(flag, flag, 1, DataType.INT32.ordinal(), SUM, comm, stream);
      }
      case ALL_TO_ALL ->
          Features.ALL_TO_ALL.isPresent()
              ? Nccl.ncclAlltoAll(at(w.send), at(w.recv), w.count, type, comm, stream)
              : blocks(w, comm, stream);
      case GATHER ->
          Features.GATHER.isPresent()
              ? Nccl.ncclGather(at(w.send), at(w.recv), w.count, type, w.root, comm, stream)
              : blocks(w, comm, stream);
      case SCATTER ->
          Features.SCATTER.isPresent()
              ? Nccl.ncclScatter(at(w.send), at(w.recv), w.count, type, w.root, comm, stream)
              : blocks(w, comm, stream);
      default -> blocks(w, comm, stream);
    };
  }

  /** The mean of one rank's elements is those elements, with the bits they have. */
  private static int plainOp(CudaWork w) {
    return w.communicator.nranks() == 1 && w.op.kind() == ReduceOp.Kind.AVG
        ? SUM
        : w.op.kind().ordinal();
  }

  private static MemorySegment at(@Nullable DeviceBuffer buffer) {
    return buffer == null ? MemorySegment.NULL : ((CudaBuffer) buffer).pointer();
  }

  private static MemorySegment at(@Nullable DeviceBuffer buffer, long offset) {
    return MemorySegment.ofAddress(Objects.requireNonNull(buffer).address() + offset);
  }

  private static int createScaledSum(CudaWork w, MemorySegment comm) {
    MemorySegment out = w.communicator.pending().opOut();
    MemorySegment scalar = w.communicator.pending().scalar();
    DeviceBuffer onDevice = w.op.deviceScalar();
    if (onDevice != null) {
      scalar = at(onDevice);
    } else {
      Scalars.write(scalar, w.type, w.op);
    }
    int result =
        Nccl.ncclRedOpCreatePreMulSum(
            out, scalar, w.type.ordinal(), onDevice != null ? DEVICE : HOST_IMMEDIATE, comm);
    if (result == NcclResults.SUCCESS) {
      w.createdOp = out.get(ValueLayout.JAVA_INT, 0);
    }
    return result;
  }

  // ---- made of sends, receives, broadcasts and reductions

  private static int blocks(CudaWork w, MemorySegment comm, MemorySegment stream) {
    int result = Nccl.ncclGroupStart();
    int nranks = w.communicator.nranks();
    int own = w.communicator.rank();
    for (int k = 0; k < nranks && !NcclResults.isFailure(result); k++) {
      result =
          switch (w.kind) {
            case ALL_TO_ALL ->
                exchange(w, k, k * w.count, w.count, k * w.count, w.count, comm, stream);
            case ALL_TO_ALL_V ->
                exchange(
                    w,
                    k,
                    longs(w.sendDisplacements)[k],
                    longs(w.sendCounts)[k],
                    longs(w.recvDisplacements)[k],
                    longs(w.recvCounts)[k],
                    comm,
                    stream);
            case GATHER ->
                exchange(
                    w, k, 0, ifRoot(w, k, w.count), k * w.count, ifOwn(w, w.count), comm, stream);
            case GATHER_V ->
                exchange(
                    w,
                    k,
                    0,
                    ifRoot(w, k, w.count),
                    own == w.root ? longs(w.recvDisplacements)[k] : 0,
                    own == w.root ? longs(w.recvCounts)[k] : 0,
                    comm,
                    stream);
            case SCATTER ->
                exchange(
                    w, k, k * w.count, ifOwn(w, w.count), 0, ifRoot(w, k, w.count), comm, stream);
            case SCATTER_V ->
                exchange(
                    w,
                    k,
                    own == w.root ? longs(w.sendDisplacements)[k] : 0,
                    own == w.root ? longs(w.sendCounts)[k] : 0,
                    0,
                    ifRoot(w, k, w.count),
                    comm,
                    stream);
            case ALL_GATHER_V -> broadcastBlock(w, k, own, comm, stream);
            case REDUCE_SCATTER_V -> reduceBlock(w, k, own, comm, stream);
            default -> throw new AssertionError(w.kind);
          };
    }
    int end = Nccl.ncclGroupEnd();
    return NcclResults.isFailure(result) ? result : end;
  }

  private static long[] longs(long @Nullable [] array) {
    return Objects.requireNonNull(array);
  }

  /** What goes to or comes from the root alone. */
  private static long ifRoot(CudaWork w, int k, long count) {
    return k == w.root ? count : 0;
  }

  /** What only the root does. */
  private static long ifOwn(CudaWork w, long count) {
    return w.communicator.rank() == w.root ? count : 0;
  }

  /** Sends to and receives from one rank, what there is; offsets and counts in elements. */
  private static int exchange(
      CudaWork w,
      int peer,
      long sendOffset,
      long sendCount,
      long recvOffset,
      long recvCount,
      MemorySegment comm,
      MemorySegment stream) {
    int type = w.type.ordinal();
    long size = w.type.byteSize();
    if (peer == w.communicator.rank() && isInPlace(w, sendOffset, recvOffset)) {
      return NcclResults.SUCCESS;
    }
    int result = NcclResults.SUCCESS;
    if (sendCount > 0) {
      result = Nccl.ncclSend(at(w.send, sendOffset * size), sendCount, type, peer, comm, stream);
    }
    if (recvCount > 0 && !NcclResults.isFailure(result)) {
      result = Nccl.ncclRecv(at(w.recv, recvOffset * size), recvCount, type, peer, comm, stream);
    }
    return result;
  }

  private static boolean isInPlace(CudaWork w, long sendOffset, long recvOffset) {
    long size = w.type.byteSize();
    return w.send != null
        && w.recv != null
        && w.send.address() + sendOffset * size == w.recv.address() + recvOffset * size;
  }

  private static int broadcastBlock(
      CudaWork w, int k, int own, MemorySegment comm, MemorySegment stream) {
    long count = longs(w.recvCounts)[k];
    if (count == 0) {
      return NcclResults.SUCCESS;
    }
    MemorySegment target = at(w.recv, longs(w.recvDisplacements)[k] * w.type.byteSize());
    return Nccl.ncclBroadcast(
        k == own ? at(w.send) : target, target, count, w.type.ordinal(), k, comm, stream);
  }

  private static int reduceBlock(
      CudaWork w, int k, int own, MemorySegment comm, MemorySegment stream) {
    long count = longs(w.recvCounts)[k];
    if (count == 0) {
      return NcclResults.SUCCESS;
    }
    long before = 0;
    for (int j = 0; j < k; j++) {
      before += longs(w.recvCounts)[j];
    }
    return Nccl.ncclReduce(
        at(w.send, before * w.type.byteSize()),
        k == own ? at(w.recv) : MemorySegment.NULL,
        count,
        w.type.ordinal(),
        w.createdOp >= 0 ? w.createdOp : plainOp(w),
        k,
        comm,
        stream);
  }
}

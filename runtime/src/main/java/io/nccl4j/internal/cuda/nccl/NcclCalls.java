package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Work;
import java.lang.foreign.MemorySegment;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Operations as calls of NCCL. What NCCL has no call for, or not in the version at hand, is a group
 * of calls that it has.
 */
public final class NcclCalls {
  private static final int SUM = 0;

  /** The first version that scales all elements of a single rank. */
  private static final int SCALES_ALL = 22907;

  private static final long SCALED_PART = 16 << 10;

  private NcclCalls() {}

  /**
   * Issues one work, under the handle's guard; returns NCCL's first result that is a failure, or
   * its last one.
   */
  public static int issue(Work w, NcclRank rank, MemorySegment stream) {
    int op = plainOp(w, rank);
    if (w.op.kind() == ReduceOp.Kind.PRE_MUL_SUM) {
      int result = rank.reductions().create(w);
      if (NcclResults.isFailure(result)) {
        return result;
      }
      op = rank.reductions().latest();
      if (rank.nranks() == 1 && CudaLibraries.ncclVersion() < SCALES_ALL) {
        return scaleAlone(w, op, rank, stream);
      }
    }
    return call(w, op, rank, stream);
  }

  /**
   * Scales the elements of a communicator's only rank. NCCL's kernel for that cuts them into parts
   * of about 16 KiB and, before 2.29.7, rounds the length of a part down: the last elements stay as
   * they were. It loses none of whole parts, and none of what is less than a part.
   */
  private static int scaleAlone(Work w, int op, NcclRank rank, MemorySegment stream) {
    MemorySegment comm = rank.handle().get();
    int type = w.type.ordinal();
    long size = w.type.byteSize();
    long count = w.operation == Operation.REDUCE_SCATTER_V ? w.sendCount(0) : w.count;
    long whole = count * size / SCALED_PART * SCALED_PART;
    int result = Nccl.ncclGroupStart();
    for (int part = 0; part < 2 && !NcclResults.isFailure(result); part++) {
      long at = part == 0 ? 0 : whole;
      long length = (part == 0 ? whole : count * size - whole) / size;
      if (length > 0) {
        MemorySegment from = at(w.send, at);
        result = Nccl.ncclAllReduce(from, at(w.recv, at), length, type, op, comm, stream);
      }
    }
    int end = Nccl.ncclGroupEnd();
    return NcclResults.isFailure(result) ? result : end;
  }

  /** NCCL has a function for each operation, by name, if the version at hand has it. */
  private static int call(Work w, int op, NcclRank rank, MemorySegment stream) {
    Operation operation = w.operation;
    MemorySegment comm = rank.handle().get();
    int type = w.type.ordinal();
    MemorySegment send = at(w.send);
    MemorySegment recv = at(w.recv);
    if (operation == Operation.ALL_REDUCE) {
      return Nccl.ncclAllReduce(send, recv, w.count, type, op, comm, stream);
    }
    if (operation == Operation.BROADCAST) {
      MemorySegment from = w.send == null ? recv : send;
      return Nccl.ncclBroadcast(from, recv, w.count, type, w.root, comm, stream);
    }
    if (operation == Operation.REDUCE) {
      return Nccl.ncclReduce(send, recv, w.count, type, op, w.root, comm, stream);
    }
    if (operation == Operation.ALL_GATHER) {
      return Nccl.ncclAllGather(send, recv, w.count, type, comm, stream);
    }
    if (operation == Operation.REDUCE_SCATTER) {
      return Nccl.ncclReduceScatter(send, recv, w.count, type, op, comm, stream);
    }
    if (operation == Operation.SEND) {
      return Nccl.ncclSend(send, w.count, type, w.root, comm, stream);
    }
    if (operation == Operation.RECV) {
      return Nccl.ncclRecv(recv, w.count, type, w.root, comm, stream);
    }
    if (operation == Operation.ALL_TO_ALL && Features.ALL_TO_ALL.isPresent()) {
      return Nccl.ncclAlltoAll(send, recv, w.count, type, comm, stream);
    }
    if (operation == Operation.GATHER && Features.GATHER.isPresent()) {
      return Nccl.ncclGather(send, recv, w.count, type, w.root, comm, stream);
    }
    if (operation == Operation.SCATTER && Features.SCATTER.isPresent()) {
      return Nccl.ncclScatter(send, recv, w.count, type, w.root, comm, stream);
    }
    if (operation == Operation.BARRIER) {
      MemorySegment flag = rank.barrierFlag();
      return Nccl.ncclAllReduce(flag, flag, 1, DataType.INT32.ordinal(), SUM, comm, stream);
    }
    return operation.isOneSided()
        ? NcclOneSided.issue(w, comm, stream)
        : blocks(w, op, rank, stream);
  }

  /** The mean of one rank's elements is those elements, with the bits they have. */
  private static int plainOp(Work w, NcclRank rank) {
    return rank.nranks() == 1 && w.op.kind() == ReduceOp.Kind.AVG ? SUM : w.op.kind().ordinal();
  }

  private static MemorySegment at(@Nullable DeviceBuffer buffer) {
    return buffer == null ? MemorySegment.NULL : ((CudaBuffer) buffer).pointer();
  }

  private static MemorySegment at(@Nullable DeviceBuffer buffer, long offset) {
    return MemorySegment.ofAddress(Objects.requireNonNull(buffer).address() + offset);
  }

  // ---- made of sends, receives, broadcasts and reductions

  private static int blocks(Work w, int op, NcclRank rank, MemorySegment stream) {
    int result = Nccl.ncclGroupStart();
    MemorySegment comm = rank.handle().get();
    int nranks = rank.nranks();
    int own = rank.rank();
    for (int k = 0; k < nranks && !NcclResults.isFailure(result); k++) {
      if (w.operation.reducing()) {
        result = reduceBlock(w, op, k, own, comm, stream);
      } else if (w.operation.hasCommonCounts()) {
        result = broadcastBlock(w, k, own, comm, stream);
      } else {
        result = exchange(w, k, own, comm, stream);
      }
    }
    int end = Nccl.ncclGroupEnd();
    return NcclResults.isFailure(result) ? result : end;
  }

  /** Sends to and receives from one rank, what there is. */
  private static int exchange(Work w, int peer, int own, MemorySegment comm, MemorySegment stream) {
    boolean sends = w.sends(own) && w.receives(peer);
    boolean receives = w.receives(own) && w.sends(peer);
    long sendOffset = sends ? w.sendStart(peer) : 0;
    long recvOffset = receives ? w.recvStart(peer) : 0;
    if (peer == own && isInPlace(w, sendOffset, recvOffset)) {
      return NcclResults.SUCCESS;
    }
    int type = w.type.ordinal();
    long size = w.type.byteSize();
    int result = NcclResults.SUCCESS;
    if (sends && w.sendCount(peer) > 0) {
      MemorySegment from = at(w.send, sendOffset * size);
      result = Nccl.ncclSend(from, w.sendCount(peer), type, peer, comm, stream);
    }
    if (receives && w.recvCount(peer) > 0 && !NcclResults.isFailure(result)) {
      MemorySegment to = at(w.recv, recvOffset * size);
      result = Nccl.ncclRecv(to, w.recvCount(peer), type, peer, comm, stream);
    }
    return result;
  }

  private static boolean isInPlace(Work w, long sendOffset, long recvOffset) {
    long size = w.type.byteSize();
    return w.send != null
        && w.recv != null
        && w.send.address() + sendOffset * size == w.recv.address() + recvOffset * size;
  }

  private static int broadcastBlock(
      Work w, int k, int own, MemorySegment comm, MemorySegment stream) {
    long count = w.recvCount(k);
    if (count == 0) {
      return NcclResults.SUCCESS;
    }
    MemorySegment target = at(w.recv, w.recvStart(k) * w.type.byteSize());
    return Nccl.ncclBroadcast(
        k == own ? at(w.send) : target, target, count, w.type.ordinal(), k, comm, stream);
  }

  private static int reduceBlock(
      Work w, int op, int k, int own, MemorySegment comm, MemorySegment stream) {
    long count = w.sendCount(k);
    if (count == 0) {
      return NcclResults.SUCCESS;
    }
    return Nccl.ncclReduce(
        at(w.send, w.sendStart(k) * w.type.byteSize()),
        k == own ? at(w.recv) : MemorySegment.NULL,
        count,
        w.type.ordinal(),
        op,
        k,
        comm,
        stream);
  }
}

package io.nccl4j.internal.cuda;

import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.CudaPinnedBuffer;
import io.nccl4j.internal.cuda.module.PtxKernel;
import io.nccl4j.internal.operation.Signature;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * What is known of one step of a graph: a plan of operations, a copy, a fill or a kernel, and the
 * steps it comes after.
 */
record CudaNode(int kind, List<Call> operations, List<Object> buffers, int[] after) {
  CudaNode {
    for (Object part : buffers) {
      if (part instanceof CudaBuffer buffer) {
        buffer.capture();
      }
    }
  }

  /** Kinds of steps. */
  static final int PLAN = 0;

  static final int COPY = 1;
  static final int FILL = 2;
  static final int KERNEL = 3;

  /** An operation in a plan; {@code order} counts the calls of the capture. */
  record Call(CudaCommunicator communicator, long code, long count, long signature, int order) {
    /** Notes one run of it. */
    void note() {
      communicator.ledger().note(code, count, signature);
    }

    private String label() {
      return Signature.operation(code).label();
    }
  }

  static CudaNode plan(List<CudaWork> works, int[] after) {
    List<Call> operations = new ArrayList<>();
    List<Object> buffers = new ArrayList<>();
    for (CudaWork work : works) {
      operations.add(
          new Call(
              work.communicator,
              work.code(),
              work.count,
              work.signedCount(work.communicator.nranks()),
              work.order));
      for (Object buffer : new Object[] {work.send, work.recv, work.op.deviceScalar()}) {
        if (buffer != null) {
          buffers.add(buffer);
        }
      }
    }
    return new CudaNode(PLAN, List.copyOf(operations), List.copyOf(buffers), after);
  }

  static CudaNode transfer(int kind, Object target, @Nullable Object source, int[] after) {
    return new CudaNode(
        kind, List.of(), source == null ? List.of(target) : List.of(target, source), after);
  }

  boolean uses(Object buffer) {
    return buffers.stream().anyMatch(part -> Slot.isPart(part, buffer));
  }

  boolean usesClosed() {
    for (int i = 0; i < buffers.size(); i++) {
      Object part = buffers.get(i);
      if (part instanceof CudaBuffer buffer && buffer.isClosed()
          || part instanceof CudaPinnedBuffer pinned && pinned.isClosed()
          || part instanceof PtxKernel.Run run && run.usesClosed()) {
        return true;
      }
    }
    return false;
  }

  /** What keeps this node from taking the place of {@code other}; null if nothing does. */
  @Nullable String differenceFrom(CudaNode other) {
    if (kind != other.kind) {
      return "it is another kind of step";
    }
    if (!Arrays.equals(after, other.after)) {
      return "it comes after other steps";
    }
    if (operations.size() != other.operations.size()) {
      return "it has " + operations.size() + " operations instead of " + other.operations.size();
    }
    for (int i = 0; i < operations.size(); i++) {
      Call mine = operations.get(i);
      Call theirs = other.operations.get(i);
      if (mine.communicator != theirs.communicator) {
        return "it is on communicator "
            + mine.communicator.name()
            + " instead of "
            + theirs.communicator.name();
      }
      if (mine.code != theirs.code) {
        return "it is "
            + mine.label()
            + " instead of "
            + theirs.label()
            + ", or of another type, reduction or root";
      }
      if (mine.order != theirs.order) {
        return "it was called as operation " + mine.order + " instead of " + theirs.order;
      }
    }
    return null;
  }
}

package io.nccl4j.internal.array;

import io.nccl4j.ArrayCalls;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.operation.Arguments;
import io.nccl4j.internal.operation.Operation;
import java.lang.reflect.Array;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Array calls of one type: each checks the lengths, copies what it sends to the {@link Staging},
 * calls the communicator, waits, and copies what it has received to the array. Whatever has an
 * in-place form uses it there, which halves the memory. All else is checked by the communicator.
 *
 * @param <A> the type of the arrays
 */
final class StagedCalls<A> implements ArrayCalls<A> {
  private final Staging staging;
  private final Communicator communicator;
  private final Arguments arguments;
  private final Class<A> kind;
  private final DataType type;
  private final int rank;
  private final int nranks;

  StagedCalls(Staging staging, Communicator communicator, Class<A> kind, DataType type) {
    this.staging = staging;
    this.communicator = communicator;
    this.kind = kind;
    this.type = type;
    this.rank = communicator.rank();
    this.nranks = communicator.nranks();
    this.arguments = new Arguments(rank, nranks, communicator.device());
  }

  @Override
  public DataType type() {
    return type;
  }

  // ---- blocks that are all as long

  @Override
  public void allReduce(A send, A recv, ReduceOp op) {
    int count = length(send, "send", Operation.ALL_REDUCE);
    requireLength(recv, "recv", count, "send", Operation.ALL_REDUCE);
    DeviceBuffer memory = staging.enter(Operation.ALL_REDUCE, bytes(count));
    try {
      memory.copyFrom(send);
      communicator.allReduce(memory, memory, count, type, op, staging.stream());
      staging.await();
      memory.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void broadcast(A data, int root) {
    int count = length(data, "data", Operation.BROADCAST);
    DeviceBuffer memory = staging.enter(Operation.BROADCAST, bytes(count));
    try {
      if (rank == root) {
        memory.copyFrom(data);
      }
      communicator.broadcast(memory, memory, count, type, root, staging.stream());
      staging.await();
      if (rank != root) {
        memory.copyTo(data);
      }
    } finally {
      staging.leave();
    }
  }

  @Override
  public void reduce(A send, @Nullable A recv, ReduceOp op, int root) {
    int count = length(send, "send", Operation.REDUCE);
    if (rank == root) {
      requireLength(recv, "recv", count, "send", Operation.REDUCE);
    }
    DeviceBuffer memory = staging.enter(Operation.REDUCE, bytes(count));
    try {
      memory.copyFrom(send);
      communicator.reduce(memory, memory, count, type, op, root, staging.stream());
      staging.await();
      if (rank == root && recv != null) {
        memory.copyTo(recv);
      }
    } finally {
      staging.leave();
    }
  }

  @Override
  public void allGather(A data) {
    int block = block(data, "data", Operation.ALL_GATHER);
    allGather(data, rank * block, block, data);
  }

  @Override
  public void allGather(A send, A recv) {
    int count = length(send, "send", Operation.ALL_GATHER);
    requireLength(recv, "recv", (long) nranks * count, "nranks times send", Operation.ALL_GATHER);
    allGather(send, 0, count, recv);
  }

  private void allGather(A send, int from, int count, A recv) {
    DeviceBuffer memory = staging.enter(Operation.ALL_GATHER, nranks * bytes(count));
    try {
      DeviceBuffer own = staging.from(memory, rank * bytes(count));
      own.copyFrom(send, from, count);
      communicator.allGather(own, memory, count, type, staging.stream());
      staging.await();
      memory.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void reduceScatter(A send, A recv, ReduceOp op) {
    int count = length(recv, "recv", Operation.REDUCE_SCATTER);
    long all = (long) nranks * count;
    requireLength(send, "send", all, "nranks times recv", Operation.REDUCE_SCATTER);
    DeviceBuffer memory = staging.enter(Operation.REDUCE_SCATTER, bytes(all));
    try {
      DeviceBuffer own = staging.from(memory, rank * bytes(count));
      memory.copyFrom(send);
      communicator.reduceScatter(memory, own, count, type, op, staging.stream());
      staging.await();
      own.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void allToAll(A send, A recv) {
    int block = block(send, "send", Operation.ALL_TO_ALL);
    int all = nranks * block;
    requireLength(recv, "recv", all, "send", Operation.ALL_TO_ALL);
    long second = Staging.behind(bytes(all));
    DeviceBuffer out = staging.enter(Operation.ALL_TO_ALL, second + bytes(all));
    try {
      DeviceBuffer in = staging.from(out, second);
      out.copyFrom(send);
      communicator.allToAll(out, in, block, type, staging.stream());
      staging.await();
      in.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void gather(A send, @Nullable A recv, int root) {
    int count = length(send, "send", Operation.GATHER);
    boolean isRoot = rank == root;
    long all = isRoot ? (long) nranks * count : count;
    if (isRoot) {
      requireLength(recv, "recv", all, "nranks times send", Operation.GATHER);
    }
    DeviceBuffer memory = staging.enter(Operation.GATHER, bytes(all));
    try {
      DeviceBuffer own = isRoot ? staging.from(memory, rank * bytes(count)) : memory;
      own.copyFrom(send);
      communicator.gather(own, isRoot ? memory : null, count, type, root, staging.stream());
      staging.await();
      if (isRoot && recv != null) {
        memory.copyTo(recv);
      }
    } finally {
      staging.leave();
    }
  }

  @Override
  public void scatter(@Nullable A send, A recv, int root) {
    int count = length(recv, "recv", Operation.SCATTER);
    boolean isRoot = rank == root;
    long all = isRoot ? (long) nranks * count : count;
    if (isRoot) {
      requireLength(send, "send", all, "nranks times recv", Operation.SCATTER);
    }
    DeviceBuffer memory = staging.enter(Operation.SCATTER, bytes(all));
    try {
      DeviceBuffer own = isRoot ? staging.from(memory, rank * bytes(count)) : memory;
      if (isRoot && send != null) {
        memory.copyFrom(send);
      }
      communicator.scatter(isRoot ? memory : null, own, count, type, root, staging.stream());
      staging.await();
      own.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  // ---- blocks with counts of their own

  @Override
  public void allGatherV(A send, A recv, long[] recvCounts) {
    allGatherV(send, recv, recvCounts, follow(recvCounts, "recvCounts", Operation.ALL_GATHER_V));
  }

  @Override
  public void allGatherV(A send, A recv, long[] recvCounts, long[] recvDisplacements) {
    Operation operation = Operation.ALL_GATHER_V;
    long all = extent(recvCounts, recvDisplacements, "recv", operation);
    requireLength(send, "send", recvCounts[rank], "recvCounts[rank]", operation);
    requireRoom(recv, "recv", all, operation);
    DeviceBuffer memory = staging.enter(operation, bytes(all));
    try {
      DeviceBuffer own = own(memory, recvCounts, recvDisplacements);
      own.copyFrom(send);
      communicator.allGatherV(own, memory, recvCounts, recvDisplacements, type, staging.stream());
      staging.await();
      copyBlocks(memory, recv, recvCounts, recvDisplacements);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void reduceScatterV(A send, A recv, long[] recvCounts, ReduceOp op) {
    Operation operation = Operation.REDUCE_SCATTER_V;
    long[] starts = follow(recvCounts, "recvCounts", operation);
    long all = extent(recvCounts, starts, "recv", operation);
    requireRoom(send, "send", all, operation);
    requireLength(recv, "recv", recvCounts[rank], "recvCounts[rank]", operation);
    DeviceBuffer memory = staging.enter(operation, bytes(all));
    try {
      DeviceBuffer own = own(memory, recvCounts, starts);
      memory.copyFrom(send, 0, (int) all);
      communicator.reduceScatterV(memory, own, recvCounts, type, op, staging.stream());
      staging.await();
      own.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void allToAllV(A send, long[] sendCounts, A recv, long[] recvCounts) {
    Operation operation = Operation.ALL_TO_ALL_V;
    allToAllV(
        send,
        sendCounts,
        follow(sendCounts, "sendCounts", operation),
        recv,
        recvCounts,
        follow(recvCounts, "recvCounts", operation));
  }

  @Override
  public void allToAllV(
      A send,
      long[] sendCounts,
      long[] sendDisplacements,
      A recv,
      long[] recvCounts,
      long[] recvDisplacements) {
    Operation operation = Operation.ALL_TO_ALL_V;
    long sent = extent(sendCounts, sendDisplacements, "send", operation);
    long received = extent(recvCounts, recvDisplacements, "recv", operation);
    requireRoom(send, "send", sent, operation);
    requireRoom(recv, "recv", received, operation);
    long second = Staging.behind(bytes(sent));
    DeviceBuffer out = staging.enter(operation, second + bytes(received));
    try {
      DeviceBuffer in = staging.from(out, second);
      out.copyFrom(send, 0, (int) sent);
      communicator.allToAllV(
          out,
          sendCounts,
          sendDisplacements,
          in,
          recvCounts,
          recvDisplacements,
          type,
          staging.stream());
      staging.await();
      copyBlocks(in, recv, recvCounts, recvDisplacements);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void gatherV(A send, @Nullable A recv, long @Nullable [] recvCounts, int root) {
    boolean isRoot = rank == root;
    long[] starts = isRoot ? follow(recvCounts, "recvCounts", Operation.GATHER_V) : null;
    gatherV(send, recv, recvCounts, starts, root);
  }

  @Override
  public void gatherV(
      A send,
      @Nullable A recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      int root) {
    Operation operation = Operation.GATHER_V;
    int count = length(send, "send", operation);
    boolean isRoot = rank == root;
    long all = count;
    if (isRoot) {
      all = extent(recvCounts, recvDisplacements, "recv", operation);
      requireOwn(send, "send", recvCounts, "recvCounts[rank]", operation);
      requireRoom(recv, "recv", all, operation);
    }
    DeviceBuffer memory = staging.enter(operation, bytes(all));
    try {
      DeviceBuffer own = isRoot ? own(memory, recvCounts, recvDisplacements) : memory;
      own.copyFrom(send);
      communicator.gatherV(
          own,
          count,
          isRoot ? memory : null,
          recvCounts,
          recvDisplacements,
          type,
          root,
          staging.stream());
      staging.await();
      if (isRoot) {
        copyBlocks(memory, recv, recvCounts, recvDisplacements);
      }
    } finally {
      staging.leave();
    }
  }

  @Override
  public void scatterV(@Nullable A send, long @Nullable [] sendCounts, A recv, int root) {
    boolean isRoot = rank == root;
    long[] starts = isRoot ? follow(sendCounts, "sendCounts", Operation.SCATTER_V) : null;
    scatterV(send, sendCounts, starts, recv, root);
  }

  @Override
  public void scatterV(
      @Nullable A send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      A recv,
      int root) {
    Operation operation = Operation.SCATTER_V;
    int count = length(recv, "recv", operation);
    boolean isRoot = rank == root;
    long all = count;
    if (isRoot) {
      all = extent(sendCounts, sendDisplacements, "send", operation);
      requireOwn(recv, "recv", sendCounts, "sendCounts[rank]", operation);
      requireRoom(send, "send", all, operation);
    }
    DeviceBuffer memory = staging.enter(operation, bytes(all));
    try {
      DeviceBuffer own = isRoot ? own(memory, sendCounts, sendDisplacements) : memory;
      if (isRoot && send != null) {
        memory.copyFrom(send, 0, (int) all);
      }
      communicator.scatterV(
          isRoot ? memory : null,
          sendCounts,
          sendDisplacements,
          own,
          count,
          type,
          root,
          staging.stream());
      staging.await();
      own.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  // ---- messages

  @Override
  public void send(A data, int peer) {
    int count = length(data, "data", Operation.SEND);
    DeviceBuffer memory = staging.enter(Operation.SEND, bytes(count));
    try {
      memory.copyFrom(data);
      communicator.send(memory, count, type, peer, staging.stream());
      staging.await();
    } finally {
      staging.leave();
    }
  }

  @Override
  public void recv(A data, int peer) {
    int count = length(data, "data", Operation.RECV);
    DeviceBuffer memory = staging.enter(Operation.RECV, bytes(count));
    try {
      communicator.recv(memory, count, type, peer, staging.stream());
      staging.await();
      memory.copyTo(data);
    } finally {
      staging.leave();
    }
  }

  @Override
  public void sendRecv(A send, int to, A recv, int from) {
    int sent = length(send, "send", Operation.SEND);
    int received = length(recv, "recv", Operation.RECV);
    long second = Staging.behind(bytes(sent));
    DeviceBuffer out = staging.enter(Operation.SEND, second + bytes(received));
    try {
      DeviceBuffer in = staging.from(out, second);
      out.copyFrom(send);
      try (Group group = Group.start()) {
        communicator.send(out, sent, type, to, staging.stream());
        communicator.recv(in, received, type, from, staging.stream());
        group.launch();
      }
      staging.await();
      in.copyTo(recv);
    } finally {
      staging.leave();
    }
  }

  // ---- lengths

  private long bytes(long count) {
    return count * type.byteSize();
  }

  private int length(@Nullable A array, String name, Operation operation) {
    if (!kind.isInstance(array)) {
      throw new InvalidArgumentException(
          operation.label()
              + ": "
              + name
              + " is "
              + (array == null ? "null" : "a " + array.getClass().getTypeName()),
          "pass a " + kind.getTypeName());
    }
    return Array.getLength(array);
  }

  private void requireLength(
      @Nullable A array, String name, long needed, String as, Operation operation) {
    int length = length(array, name, operation);
    if (length != needed) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " has " + length + " elements, not " + needed,
          "make it as long as " + as);
    }
  }

  /** The root's own block is in both arrays. */
  private void requireOwn(
      A array, String name, long @Nullable [] counts, String as, Operation operation) {
    requireLength(array, name, Objects.requireNonNull(counts)[rank], as, operation);
  }

  private void requireRoom(@Nullable A array, String name, long needed, Operation operation) {
    int length = length(array, name, operation);
    if (length < needed) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " has " + length + " elements, its blocks " + needed,
          "pass a longer array, or check counts and displacements");
    }
  }

  /** The elements of each rank's block, of which the array has one for each. */
  private int block(@Nullable A array, String name, Operation operation) {
    int length = length(array, name, operation);
    if (length % nranks != 0) {
      throw new InvalidArgumentException(
          operation.label() + ": " + name + " has " + length + " elements for " + nranks + " ranks",
          "pass a block of the same length for each rank");
    }
    return length / nranks;
  }

  /** The displacements of blocks that follow each other. */
  private long[] follow(long @Nullable [] counts, String name, Operation operation) {
    long[] checked = arguments.counts(counts, name, operation);
    long[] starts = new long[checked.length];
    for (int k = 1; k < starts.length; k++) {
      starts[k] = starts[k - 1] + checked[k - 1];
    }
    return starts;
  }

  /** The elements up to the end of the last block. */
  private long extent(
      long @Nullable [] counts, long @Nullable [] displacements, String name, Operation operation) {
    long[] of = arguments.counts(counts, name + "Counts", operation);
    long[] at = arguments.counts(displacements, name + "Displacements", operation);
    return Arguments.extent(of, at, type, name + "Counts", operation) / type.byteSize();
  }

  /** This rank's block, as large as it is. */
  private DeviceBuffer own(
      DeviceBuffer memory, long @Nullable [] counts, long @Nullable [] displacements) {
    long count = Objects.requireNonNull(counts)[rank];
    // An empty block may lie anywhere.
    long start = count == 0 ? 0 : Objects.requireNonNull(displacements)[rank];
    return memory.slice(type, start, count);
  }

  /** Copies received blocks to an array, and nothing of what lies between them. */
  private void copyBlocks(
      DeviceBuffer memory,
      @Nullable A recv,
      long @Nullable [] counts,
      long @Nullable [] displacements) {
    A target = Objects.requireNonNull(recv);
    long[] of = Objects.requireNonNull(counts);
    long[] at = Objects.requireNonNull(displacements);
    for (int k = 0; k < nranks; k++) {
      if (of[k] > 0) {
        memory.slice(type, at[k], of[k]).copyTo(target, (int) at[k], (int) of[k]);
      }
    }
  }
}

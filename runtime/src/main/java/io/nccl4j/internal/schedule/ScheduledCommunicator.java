package io.nccl4j.internal.schedule;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.internal.spi.EngineStream;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The way of every operation up to its launch: check, take a work from the FIFO, fill it in, and
 * hand it to the open group or straight to its stream.
 *
 * @param <W> the backend's work
 */
public abstract class ScheduledCommunicator<W extends Work> extends Padded implements Communicator {
  private static final VarHandle ENTERED;

  static {
    try {
      ENTERED =
          MethodHandles.lookup().findVarHandle(ScheduledCommunicator.class, "entered", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final int rank;
  private final int nranks;
  private final Device device;
  private final WorkFifo<W> fifo;
  private final GroupScope.Finder groups = new GroupScope.Finder();

  @SuppressWarnings("unused") // by VarHandle
  private int entered;

  /** The groups of the thread whose launch is inside. Another thread never finds its own here. */
  private GroupScope.@Nullable PerThread launching;

  private volatile boolean taskEnded;

  /** A communicator whose works lie in {@code fifo}. */
  protected ScheduledCommunicator(int rank, int nranks, Device device, WorkFifo<W> fifo) {
    this.rank = rank;
    this.nranks = nranks;
    this.device = device;
    this.fifo = fifo;
  }

  @Override
  public final int rank() {
    return rank;
  }

  @Override
  public final int nranks() {
    return nranks;
  }

  @Override
  public final Device device() {
    return device;
  }

  /** The FIFO, for diagnosis and for looking for works that use a buffer. */
  public final WorkFifo<W> fifo() {
    return fifo;
  }

  /** Whether the rank issues no operation any more, until further notice. */
  public final boolean hasTaskEnded() {
    return taskEnded;
  }

  /** See {@link #hasTaskEnded}. */
  public final void setTaskEnded(boolean ended) {
    taskEnded = ended;
  }

  /**
   * What a rank is told that waits for one whose task has ended.
   *
   * @param operation what it waits for, in words
   */
  public static PeerFailedException taskEnded(int ended, int waiting, String operation) {
    return new PeerFailedException(
        ended,
        "rank "
            + ended
            + "'s task ended (normally) while "
            + operation
            + " waits for it on rank "
            + waiting,
        "let every rank's task issue the same operations");
  }

  /** Why this rank aborts its communicator. */
  private AbortedException aborted(@Nullable Throwable cause) {
    List<Integer> failed = cause instanceof NcclException e ? e.failedRanks() : List.of();
    AbortedException aborted =
        new AbortedException(
            "communicator "
                + name()
                + " was aborted by rank "
                + rank
                + (cause == null ? "" : ": " + cause),
            "create a new one",
            failed.isEmpty() ? List.of(rank) : failed);
    if (cause != null) {
      NcclException ignored = aborted.causedBy(cause);
    }
    return aborted;
  }

  @Override
  public final void abort() {
    abort(aborted(null));
  }

  @Override
  public final void abort(Throwable cause) {
    if (cause == null) {
      throw new InvalidArgumentException("abort: the cause is null", "pass one, or none at all");
    }
    abort(aborted(cause));
  }

  /** Fails this rank, and with it all others, unless it has failed before. Any thread. */
  protected abstract void abort(AbortedException reason);

  /** Whether this backend made the buffer. */
  protected abstract boolean isOwn(DeviceBuffer buffer);

  /**
   * Throws if a peer of a failed communicator may still write to this backend's buffer.
   *
   * @throws InvalidUsageException that says who
   */
  protected void requireQuiet(DeviceBuffer buffer, OpKind kind) {}

  /** The stream as this backend's own, or null if it is another's. */
  protected abstract @Nullable EngineStream<W> engineStream(Stream stream);

  /**
   * Throws unless operations are accepted.
   *
   * @throws NcclException that says why not
   */
  protected abstract void requireReady();

  /**
   * Throws if the backend has no such operation, though its arguments are right.
   *
   * @throws InvalidArgumentException that says what is missing
   */
  protected void requireSupported(OpKind kind, DataType type, ReduceOp op) {}

  /** Gives the work its sequence number and signature and notes it in the ledger. Cannot fail. */
  protected abstract void assign(W work);

  /** Waits, by driving queued work, until the FIFO has room. */
  protected abstract void awaitFifoRoom();

  /** A work for a graph, which takes no room in the FIFO and is numbered at each launch. */
  protected abstract W newCapturedWork();

  @Override
  public final void allReduce(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op, Stream stream) {
    OpKind kind = OpKind.ALL_REDUCE;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long bytes = Arguments.bytes(count, 1, type, "count", kind);
      Arguments.reduction(op, type, device, kind);
      Arguments.buffer(send, bytes, type, device, "send", kind);
      Arguments.buffer(recv, bytes, type, device, "receive", kind);
      Arguments.overlap(send, bytes, recv, bytes, 0, kind);
      submit(s, kind, type, op, count, 0, send, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void broadcast(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int root,
      Stream stream) {
    OpKind kind = OpKind.BROADCAST;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long bytes = Arguments.bytes(count, 1, type, "count", kind);
      Arguments.buffer(recv, bytes, type, device, "receive", kind);
      DeviceBuffer source = rank == root ? send : null;
      if (rank == root) {
        Arguments.buffer(send, bytes, type, device, "send", kind);
        Arguments.overlap(send, bytes, recv, bytes, 0, kind);
      }
      submit(s, kind, type, ReduceOp.SUM, count, root, source, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void reduce(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream) {
    OpKind kind = OpKind.REDUCE;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long bytes = Arguments.bytes(count, 1, type, "count", kind);
      Arguments.reduction(op, type, device, kind);
      Arguments.buffer(send, bytes, type, device, "send", kind);
      DeviceBuffer target = rank == root ? recv : null;
      if (rank == root) {
        Arguments.buffer(recv, bytes, type, device, "receive", kind);
        Arguments.overlap(send, bytes, recv, bytes, 0, kind);
      }
      submit(s, kind, type, op, count, root, send, target);
    } finally {
      leave();
    }
  }

  @Override
  public final void allGather(
      DeviceBuffer send, DeviceBuffer recv, long sendCount, DataType type, Stream stream) {
    OpKind kind = OpKind.ALL_GATHER;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long all = Arguments.bytes(sendCount, nranks, type, "count", kind);
      long block = all / nranks;
      Arguments.buffer(send, block, type, device, "send", kind);
      Arguments.buffer(recv, all, type, device, "receive", kind);
      Arguments.overlap(send, block, recv, all, -rank * block, kind);
      submit(s, kind, type, ReduceOp.SUM, sendCount, 0, send, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void reduceScatter(
      DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      ReduceOp op,
      Stream stream) {
    OpKind kind = OpKind.REDUCE_SCATTER;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long all = Arguments.bytes(recvCount, nranks, type, "count", kind);
      long block = all / nranks;
      Arguments.reduction(op, type, device, kind);
      Arguments.buffer(send, all, type, device, "send", kind);
      Arguments.buffer(recv, block, type, device, "receive", kind);
      Arguments.overlap(send, all, recv, block, rank * block, kind);
      submit(s, kind, type, op, recvCount, 0, send, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void allToAll(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, Stream stream) {
    OpKind kind = OpKind.ALL_TO_ALL;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long all = Arguments.bytes(count, nranks, type, "count", kind);
      Arguments.buffer(send, all, type, device, "send", kind);
      Arguments.buffer(recv, all, type, device, "receive", kind);
      Arguments.overlap(send, all, recv, all, Long.MIN_VALUE, kind);
      submit(s, kind, type, ReduceOp.SUM, count, 0, send, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void gather(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long sendCount,
      DataType type,
      int root,
      Stream stream) {
    OpKind kind = OpKind.GATHER;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long all = Arguments.bytes(sendCount, nranks, type, "count", kind);
      long block = all / nranks;
      Arguments.buffer(send, block, type, device, "send", kind);
      DeviceBuffer target = rank == root ? recv : null;
      if (rank == root) {
        Arguments.buffer(recv, all, type, device, "receive", kind);
        Arguments.overlap(send, block, recv, all, -root * block, kind);
      }
      submit(s, kind, type, ReduceOp.SUM, sendCount, root, send, target);
    } finally {
      leave();
    }
  }

  @Override
  public final void scatter(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream) {
    OpKind kind = OpKind.SCATTER;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long all = Arguments.bytes(recvCount, nranks, type, "count", kind);
      long block = all / nranks;
      Arguments.buffer(recv, block, type, device, "receive", kind);
      DeviceBuffer source = rank == root ? send : null;
      if (rank == root) {
        Arguments.buffer(send, all, type, device, "send", kind);
        Arguments.overlap(send, all, recv, block, root * block, kind);
      }
      submit(s, kind, type, ReduceOp.SUM, recvCount, root, source, recv);
    } finally {
      leave();
    }
  }

  @Override
  public final void allGatherV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream) {
    OpKind kind = OpKind.ALL_GATHER_V;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long extent =
          blocks(recvCounts, recvDisplacements, type, "recvCounts", "recvDisplacements", kind);
      Arguments.disjoint(recvCounts, recvDisplacements, "receive", kind);
      long block = recvCounts[rank] * type.byteSize();
      Arguments.buffer(send, block, type, device, "send", kind);
      Arguments.buffer(recv, extent, type, device, "receive", kind);
      Arguments.overlap(
          send, block, recv, extent, -recvDisplacements[rank] * type.byteSize(), kind);
      submit(
          s,
          kind,
          type,
          ReduceOp.SUM,
          recvCounts[rank],
          0,
          send,
          recv,
          null,
          null,
          recvCounts,
          recvDisplacements);
    } finally {
      leave();
    }
  }

  @Override
  public final void reduceScatterV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      DataType type,
      ReduceOp op,
      Stream stream) {
    OpKind kind = OpKind.REDUCE_SCATTER_V;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.counts(recvCounts, nranks, "recvCounts", kind);
      long all = Arguments.extent(recvCounts, null, type, "recvCounts", kind);
      long block = recvCounts[rank] * type.byteSize();
      long before = 0;
      for (int i = 0; i < rank; i++) {
        before += recvCounts[i] * type.byteSize();
      }
      Arguments.reduction(op, type, device, kind);
      Arguments.buffer(send, all, type, device, "send", kind);
      Arguments.buffer(recv, block, type, device, "receive", kind);
      Arguments.overlap(send, all, recv, block, before, kind);
      submit(s, kind, type, op, recvCounts[rank], 0, send, recv, null, null, recvCounts, null);
    } finally {
      leave();
    }
  }

  @Override
  public final void allToAllV(
      DeviceBuffer send,
      long[] sendCounts,
      long[] sendDisplacements,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream) {
    OpKind kind = OpKind.ALL_TO_ALL_V;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      long sendExtent =
          blocks(sendCounts, sendDisplacements, type, "sendCounts", "sendDisplacements", kind);
      long recvExtent =
          blocks(recvCounts, recvDisplacements, type, "recvCounts", "recvDisplacements", kind);
      Arguments.disjoint(recvCounts, recvDisplacements, "receive", kind);
      if (sendCounts[rank] != recvCounts[rank]) {
        throw new InvalidArgumentException(
            kind.label()
                + ": this rank sends "
                + sendCounts[rank]
                + " elements to itself and expects "
                + recvCounts[rank],
            "make sendCounts[rank] equal recvCounts[rank]");
      }
      Arguments.buffer(send, sendExtent, type, device, "send", kind);
      Arguments.buffer(recv, recvExtent, type, device, "receive", kind);
      Arguments.overlap(send, sendExtent, recv, recvExtent, Long.MIN_VALUE, kind);
      submit(
          s,
          kind,
          type,
          ReduceOp.SUM,
          java.util.Arrays.stream(sendCounts).sum(),
          0,
          send,
          recv,
          sendCounts,
          sendDisplacements,
          recvCounts,
          recvDisplacements);
    } finally {
      leave();
    }
  }

  @Override
  public final void gatherV(
      DeviceBuffer send,
      long sendCount,
      @Nullable DeviceBuffer recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      DataType type,
      int root,
      Stream stream) {
    OpKind kind = OpKind.GATHER_V;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long block = Arguments.bytes(sendCount, 1, type, "sendCount", kind);
      Arguments.buffer(send, block, type, device, "send", kind);
      if (rank != root) {
        submit(s, kind, type, ReduceOp.SUM, sendCount, root, send, null);
        return;
      }
      long extent =
          blocks(recvCounts, recvDisplacements, type, "recvCounts", "recvDisplacements", kind);
      Arguments.disjoint(recvCounts, recvDisplacements, "receive", kind);
      requireOwnBlock(kind, sendCount, "sendCount", recvCounts[rank], "recvCounts[rank]");
      Arguments.buffer(recv, extent, type, device, "receive", kind);
      Arguments.overlap(
          send, block, recv, extent, -recvDisplacements[rank] * type.byteSize(), kind);
      submit(
          s,
          kind,
          type,
          ReduceOp.SUM,
          sendCount,
          root,
          send,
          recv,
          null,
          null,
          recvCounts,
          recvDisplacements);
    } finally {
      leave();
    }
  }

  @Override
  public final void scatterV(
      @Nullable DeviceBuffer send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream) {
    OpKind kind = OpKind.SCATTER_V;
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(root, nranks, "root", kind);
      long block = Arguments.bytes(recvCount, 1, type, "recvCount", kind);
      Arguments.buffer(recv, block, type, device, "receive", kind);
      if (rank != root) {
        submit(s, kind, type, ReduceOp.SUM, recvCount, root, null, recv);
        return;
      }
      long extent =
          blocks(sendCounts, sendDisplacements, type, "sendCounts", "sendDisplacements", kind);
      requireOwnBlock(kind, recvCount, "recvCount", sendCounts[rank], "sendCounts[rank]");
      Arguments.buffer(send, extent, type, device, "send", kind);
      Arguments.overlap(send, extent, recv, block, sendDisplacements[rank] * type.byteSize(), kind);
      submit(
          s,
          kind,
          type,
          ReduceOp.SUM,
          recvCount,
          root,
          send,
          recv,
          sendCounts,
          sendDisplacements,
          null,
          null);
    } finally {
      leave();
    }
  }

  @Override
  public final void send(DeviceBuffer send, long count, DataType type, int peer, Stream stream) {
    pointToPoint(OpKind.SEND, send, count, type, peer, stream);
  }

  @Override
  public final void recv(DeviceBuffer recv, long count, DataType type, int peer, Stream stream) {
    pointToPoint(OpKind.RECV, recv, count, type, peer, stream);
  }

  @Override
  public final void barrier(Stream stream) {
    OpKind kind = OpKind.BARRIER;
    EngineStream<W> s = enter(kind, DataType.INT8, stream);
    try {
      submit(s, kind, DataType.INT8, ReduceOp.SUM, 0, 0, null, null);
    } finally {
      leave();
    }
  }

  @Override
  public final void warmUp(WarmUp plan) {
    if (plan == null) {
      throw new InvalidArgumentException("warmUp: the plan is null", "pass a plan");
    }
    requireReady();
    new WarmUpRun(this, plan).run();
  }

  /**
   * Submits an operation of one rank alone, which cannot be captured.
   *
   * @param send what is written; null if nothing is
   * @param details what else the backend needs; copied
   */
  protected final void oneSided(
      OpKind kind,
      @Nullable DeviceBuffer send,
      long count,
      DataType type,
      int peer,
      long[] details,
      Stream stream) {
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(peer, nranks, "peer", kind);
      if (kind == OpKind.PUT_SIGNAL) {
        long bytes = Arguments.bytes(count, 1, type, "count", kind);
        Arguments.buffer(send, bytes, type, device, "send", kind);
      }
      if (s.isCapturing()) {
        throw new InvalidUsageException(
            kind.label() + ": the stream is being captured, NCCL cannot capture it",
            "call it outside the capture");
      }
      submit(s, kind, type, ReduceOp.SUM, count, peer, send, null, details, null, null, null);
    } finally {
      leave();
    }
  }

  private void pointToPoint(
      OpKind kind, DeviceBuffer buffer, long count, DataType type, int peer, Stream stream) {
    EngineStream<W> s = enter(kind, type, stream);
    try {
      Arguments.rank(peer, nranks, "peer", kind);
      long bytes = Arguments.bytes(count, 1, type, "count", kind);
      boolean sends = kind == OpKind.SEND;
      Arguments.buffer(buffer, bytes, type, device, sends ? "send" : "receive", kind);
      submit(
          s, kind, type, ReduceOp.SUM, count, peer, sends ? buffer : null, sends ? null : buffer);
    } finally {
      leave();
    }
  }

  private long blocks(
      long @Nullable [] counts,
      long @Nullable [] displacements,
      DataType type,
      String countsName,
      String displacementsName,
      OpKind kind) {
    Arguments.counts(counts, nranks, countsName, kind);
    Arguments.counts(displacements, nranks, displacementsName, kind);
    return Arguments.extent(counts, displacements, type, countsName, kind);
  }

  private static void requireOwnBlock(
      OpKind kind, long own, String ownName, long entry, String entryName) {
    if (own != entry) {
      throw new InvalidArgumentException(
          kind.label() + ": " + ownName + " is " + own + " but " + entryName + " is " + entry,
          "both say how many elements the root exchanges with itself: make them equal");
    }
  }

  private EngineStream<W> enter(OpKind kind, @Nullable DataType type, @Nullable Stream stream) {
    Arguments.present(type, "type", kind);
    Arguments.present(stream, "stream", kind);
    enterAlone(kind.label());
    try {
      requireReady();
      EngineStream<W> engineStream = engineStream(stream);
      if (engineStream == null || stream.device() != device) {
        throw new InvalidArgumentException(
            kind.label()
                + ": the stream is on "
                + stream.device().backend().label()
                + " device "
                + stream.device().ordinal()
                + ", the communicator on "
                + device.backend().label()
                + " device "
                + device.ordinal(),
            "create it with communicator.device().newStream()");
      }
      return engineStream;
    } catch (NcclException e) {
      leave();
      throw e;
    }
  }

  /**
   * Keeps other threads out while a graph with this communicator's operations is launched; {@link
   * #leave} ends it.
   *
   * @throws InvalidUsageException if another thread is inside
   * @throws NcclException if operations are not accepted
   */
  public final void enterForLaunch() {
    enterFor("launch");
  }

  /** As {@link #enterForLaunch}, for what messages call {@code what}. */
  public final void enterFor(String what) {
    enterAlone(what);
    try {
      requireReady();
    } catch (NcclException e) {
      leave();
      throw e;
    }
  }

  /**
   * Keeps other threads out, in whatever state this communicator is; {@link #leave} ends it.
   *
   * @throws InvalidUsageException if another thread is inside
   */
  public final void enterAlone(String what) {
    if (!ENTERED.compareAndSet(this, 0, 1)) {
      throw new InvalidUsageException(
          what + ": another thread is inside communicator " + name(),
          "use a communicator from one thread at a time, or one communicator per thread");
    }
  }

  /** Whether a thread is inside a call. */
  protected final boolean isEntered() {
    return (int) ENTERED.getVolatile(this) != 0;
  }

  /** Keeps other threads out while a group is launched; once for all of its works. */
  final void enterForGroup(GroupScope.PerThread groupsOfThread) {
    if (launching != groupsOfThread) {
      enterFor("launch");
      launching = groupsOfThread;
      groupsOfThread.entered.add(this);
    }
  }

  /** Ends {@link #enterForGroup}. */
  final void leaveGroup() {
    launching = null;
    leave();
  }

  /** A work was discarded, and its place is free. */
  protected void gaveBack() {}

  /** Lets other threads in again. */
  public final void leave() {
    ENTERED.setRelease(this, 0);
  }

  private void submit(
      EngineStream<W> stream,
      OpKind kind,
      DataType type,
      ReduceOp op,
      long count,
      int root,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv) {
    GroupScope group = groups.current();
    start(take(group, stream, kind, type, op, count, root, send, recv), group, stream);
  }

  private void submit(
      EngineStream<W> stream,
      OpKind kind,
      DataType type,
      ReduceOp op,
      long count,
      int root,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements) {
    GroupScope group = groups.current();
    W work = take(group, stream, kind, type, op, count, root, send, recv);
    work.sendCounts = copy(sendCounts, work.sendCounts);
    work.sendDisplacements = copy(sendDisplacements, work.sendDisplacements);
    work.recvCounts = copy(recvCounts, work.recvCounts);
    work.recvDisplacements = copy(recvDisplacements, work.recvDisplacements);
    start(work, group, stream);
  }

  /** Takes a work from the FIFO and fills it in. */
  private W take(
      @Nullable GroupScope group,
      EngineStream<W> stream,
      OpKind kind,
      DataType type,
      ReduceOp op,
      long count,
      int root,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv) {
    requireOwn(send, "send", kind);
    requireOwn(recv, "receive", kind);
    requireOwn(op.deviceScalar(), "scalar", kind);
    requireSupported(kind, type, op);
    if (group == null) {
      stream.awaitRoom();
    } else {
      group.requireRoom(this, fifo.planLimit());
    }
    W work = stream.isCapturing() ? newCapturedWork() : takeFromFifo();
    work.set(kind, type, op, root, stream);
    work.count = count;
    work.send = send;
    work.recv = recv;
    return work;
  }

  /** Hands a work to the open group or straight to its stream. */
  private void start(W work, @Nullable GroupScope group, EngineStream<W> stream) {
    if (group != null) {
      group.add(this, work);
      return;
    }
    if (!work.isCaptured()) {
      assign(work);
    }
    stream.publish(work);
  }

  private void requireOwn(@Nullable DeviceBuffer buffer, String name, OpKind kind) {
    if (buffer == null) {
      return;
    }
    if (!isOwn(buffer)) {
      throw new InvalidArgumentException(
          kind.label() + ": the " + name + " buffer is a " + buffer.getClass().getName(),
          "pass a buffer that communicator.device() allocated or wrapped");
    }
    requireQuiet(buffer, kind);
  }

  private W takeFromFifo() {
    if (!fifo.hasRoom()) {
      awaitFifoRoom();
    }
    return fifo.take();
  }

  /** Reuses the slot's array: the caller may change his own as soon as the call returns. */
  private static long @Nullable [] copy(long @Nullable [] from, long @Nullable [] to) {
    if (from == null) {
      return to;
    }
    if (to == null || to.length != from.length) {
      return from.clone();
    }
    System.arraycopy(from, 0, to, 0, from.length);
    return to;
  }
}

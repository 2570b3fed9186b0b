package io.nccl4j.internal.schedule;

import io.nccl4j.AbortedException;
import io.nccl4j.ArrayCalls;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.OperationCounters;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.internal.array.Staging;
import io.nccl4j.internal.observe.Beans;
import io.nccl4j.internal.observe.OperationTally;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.operation.Arguments;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.spi.MemoryOwner;
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
public abstract class ScheduledCommunicator<W extends Work> extends Padded
    implements Staging.Owner, MemoryOwner {
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
  private final Arguments arguments;
  private final boolean timesOperations;
  private final OperationTally tally = new OperationTally(Operation.count());
  private final FailureNotice failureNotice;
  private final GroupScope.Finder groups = new GroupScope.Finder();
  private final Staging staging = new Staging(this);

  @SuppressWarnings("unused") // by VarHandle
  private int entered;

  /** The groups of the thread whose launch is inside. Another thread never finds its own here. */
  private GroupScope.@Nullable PerThread launching;

  private volatile boolean taskEnded;

  /** Ends what JMX shows of it. */
  private volatile Runnable bean = () -> {};

  /** A communicator whose works lie in {@code fifo}. */
  protected ScheduledCommunicator(
      String name,
      int rank,
      int nranks,
      Device device,
      CommunicatorConfig config,
      WorkFifo<W> fifo) {
    this.rank = rank;
    this.nranks = nranks;
    this.device = device;
    this.fifo = fifo;
    arguments = new Arguments(rank, nranks, device);
    timesOperations = config.timesOperations();
    failureNotice = new FailureNotice(name, rank, config);
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
    staging.abandon();
    bean.run();
  }

  @Override
  public final void abort(Throwable cause) {
    if (cause == null) {
      throw new InvalidArgumentException("abort: the cause is null", "pass one, or none at all");
    }
    abort(aborted(cause));
    staging.abandon();
    bean.run();
  }

  /** Fails this rank, and with it all others, unless it has failed before. Any thread. */
  protected abstract void abort(AbortedException reason);

  // ---- observers

  /** Who is told of its failure. */
  public final FailureNotice failureNotice() {
    return failureNotice;
  }

  /** How much of each operation was submitted. */
  final OperationTally tally() {
    return tally;
  }

  /** The same, for the program. */
  protected final List<OperationCounters> operationCounters() {
    return tally.counters(kind -> Operation.of(kind).label());
  }

  /** The program has it from now on. */
  final void joined() {
    if (config().jmx()) {
      bean = Beans.find().show(new Beans.Source(this, failureNotice::failure));
    }
    failureNotice.joined(this);
  }

  /** It is closed. */
  protected final void ended() {
    bean.run();
  }

  /**
   * Numbers a work, which is to be published next. Every operation passes here, whatever its
   * backend; graphs have {@link ScheduledExecutableGraph#launch}.
   */
  final void submit(W work) {
    assign(work);
    tally.count(work.operation.number(), 1, work.bytes(rank, nranks));
    if (timesOperations || Recorder.HERE.wantsOperations()) {
      work.startTimer(tally);
    }
  }

  /** Whether this backend made the buffer. */
  protected abstract boolean isOwn(DeviceBuffer buffer);

  /**
   * Throws if a peer of a failed communicator may still write to this backend's buffer.
   *
   * @throws InvalidUsageException that says who
   */
  protected void requireQuiet(DeviceBuffer buffer, Operation operation) {}

  /**
   * Throws unless operations are accepted.
   *
   * @throws NcclException that says why not
   */
  protected abstract void requireReady();

  /**
   * Throws if the backend has no such operation, though its arguments are right.
   *
   * @param count as in {@link Work}
   * @throws NcclException that says what is missing
   */
  protected void requireSupported(Operation operation, DataType type, ReduceOp op, long count) {}

  /** Gives the work its sequence number and signature and notes it in the ledger. Cannot fail. */
  protected abstract void assign(W work);

  /** Waits, by driving queued work, until the FIFO has room. */
  protected abstract void awaitFifoRoom();

  /** A work for a graph, which takes no room in the FIFO and is numbered at each launch. */
  protected abstract W newCapturedWork();

  @Override
  public final void allReduce(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, ReduceOp op, Stream stream) {
    equal(Operation.ALL_REDUCE, send, recv, count, type, op, 0, stream);
  }

  @Override
  public final void broadcast(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      int root,
      Stream stream) {
    equal(Operation.BROADCAST, send, recv, count, type, ReduceOp.SUM, root, stream);
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
    equal(Operation.REDUCE, send, recv, count, type, op, root, stream);
  }

  @Override
  public final void allGather(
      DeviceBuffer send, DeviceBuffer recv, long sendCount, DataType type, Stream stream) {
    equal(Operation.ALL_GATHER, send, recv, sendCount, type, ReduceOp.SUM, 0, stream);
  }

  @Override
  public final void reduceScatter(
      DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      ReduceOp op,
      Stream stream) {
    equal(Operation.REDUCE_SCATTER, send, recv, recvCount, type, op, 0, stream);
  }

  @Override
  public final void allToAll(
      DeviceBuffer send, DeviceBuffer recv, long count, DataType type, Stream stream) {
    equal(Operation.ALL_TO_ALL, send, recv, count, type, ReduceOp.SUM, 0, stream);
  }

  @Override
  public final void gather(
      DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long sendCount,
      DataType type,
      int root,
      Stream stream) {
    equal(Operation.GATHER, send, recv, sendCount, type, ReduceOp.SUM, root, stream);
  }

  @Override
  public final void scatter(
      @Nullable DeviceBuffer send,
      DeviceBuffer recv,
      long recvCount,
      DataType type,
      int root,
      Stream stream) {
    equal(Operation.SCATTER, send, recv, recvCount, type, ReduceOp.SUM, root, stream);
  }

  @Override
  public final void allGatherV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      long[] recvDisplacements,
      DataType type,
      Stream stream) {
    varying(
        Operation.ALL_GATHER_V,
        send,
        null,
        null,
        recv,
        recvCounts,
        recvDisplacements,
        0,
        type,
        ReduceOp.SUM,
        0,
        stream);
  }

  @Override
  public final void reduceScatterV(
      DeviceBuffer send,
      DeviceBuffer recv,
      long[] recvCounts,
      DataType type,
      ReduceOp op,
      Stream stream) {
    varying(
        Operation.REDUCE_SCATTER_V,
        send,
        recvCounts,
        null,
        recv,
        null,
        null,
        0,
        type,
        op,
        0,
        stream);
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
    varying(
        Operation.ALL_TO_ALL_V,
        send,
        sendCounts,
        sendDisplacements,
        recv,
        recvCounts,
        recvDisplacements,
        0,
        type,
        ReduceOp.SUM,
        0,
        stream);
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
    varying(
        Operation.GATHER_V,
        send,
        null,
        null,
        recv,
        recvCounts,
        recvDisplacements,
        sendCount,
        type,
        ReduceOp.SUM,
        root,
        stream);
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
    varying(
        Operation.SCATTER_V,
        send,
        sendCounts,
        sendDisplacements,
        recv,
        null,
        null,
        recvCount,
        type,
        ReduceOp.SUM,
        root,
        stream);
  }

  @Override
  public final void send(DeviceBuffer send, long count, DataType type, int peer, Stream stream) {
    equal(Operation.SEND, send, null, count, type, ReduceOp.SUM, peer, stream);
  }

  @Override
  public final void recv(DeviceBuffer recv, long count, DataType type, int peer, Stream stream) {
    equal(Operation.RECV, null, recv, count, type, ReduceOp.SUM, peer, stream);
  }

  @Override
  public final void barrier(Stream stream) {
    equal(Operation.BARRIER, null, null, 0, DataType.INT8, ReduceOp.SUM, 0, stream);
  }

  // ---- arrays

  @Override
  public final <A> ArrayCalls<A> arrays(Class<A> kind, DataType type) {
    return staging.calls(kind, type);
  }

  @Override
  public final void barrier() {
    staging.barrier();
  }

  @Override
  public final void requireBlocking(String call) {
    enterFor(call);
    try {
      if (groups.current() != null) {
        throw new InvalidUsageException(
            call + ": a group is open on this thread, and a call that waits cannot be part of it",
            "launch or close the group first, or pass buffers and a stream");
      }
      if (Capture.isUnderWay(device)) {
        throw new InvalidUsageException(
            call + ": this thread captures a stream of " + device + ", which runs nothing",
            "end the capture first, or pass buffers and the captured stream");
      }
    } finally {
      leave();
    }
  }

  /** Gives back what array calls have taken; the communicator is closed. */
  protected final void endArrays() {
    staging.end();
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
      Operation operation,
      @Nullable DeviceBuffer send,
      long count,
      DataType type,
      int peer,
      long[] details,
      Stream stream) {
    ScheduledStream<W> s = enter(operation, type, stream);
    try {
      arguments.equal(operation, send, null, count, type, ReduceOp.SUM, peer);
      if (s.isCapturing()) {
        throw new InvalidUsageException(
            operation.label() + ": the stream is being captured, NCCL cannot capture it",
            "call it outside the capture");
      }
      GroupScope group = groups.current();
      W work = take(group, s, operation, type, ReduceOp.SUM, count, peer, send, null);
      work.sendCounts = copy(details, work.sendCounts);
      start(work, group, s);
    } finally {
      leave();
    }
  }

  /** An operation whose blocks are all as long. */
  private void equal(
      Operation operation,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream) {
    ScheduledStream<W> s = enter(operation, type, stream);
    try {
      arguments.equal(operation, send, recv, count, type, op, root);
      GroupScope group = groups.current();
      start(take(group, s, operation, type, op, count, root, send, recv), group, s);
    } finally {
      leave();
    }
  }

  /** An operation in which each block has a count of its own. */
  private void varying(
      Operation operation,
      @Nullable DeviceBuffer send,
      long @Nullable [] sendCounts,
      long @Nullable [] sendDisplacements,
      @Nullable DeviceBuffer recv,
      long @Nullable [] recvCounts,
      long @Nullable [] recvDisplacements,
      long own,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream) {
    ScheduledStream<W> s = enter(operation, type, stream);
    try {
      long count =
          arguments.varying(
              operation,
              send,
              sendCounts,
              sendDisplacements,
              recv,
              recvCounts,
              recvDisplacements,
              own,
              type,
              op,
              root);
      GroupScope group = groups.current();
      W work = take(group, s, operation, type, op, count, root, send, recv);
      if (sendCounts != null && work.sends(rank)) {
        work.sendCounts = copy(sendCounts, work.sendCounts);
        work.sendDisplacements =
            sendDisplacements == null
                ? starts(work.sendCounts, work.sendDisplacements)
                : copy(sendDisplacements, work.sendDisplacements);
      }
      if (recvCounts != null && recvDisplacements != null && work.receives(rank)) {
        work.recvCounts = copy(recvCounts, work.recvCounts);
        work.recvDisplacements = copy(recvDisplacements, work.recvDisplacements);
      }
      start(work, group, s);
    } finally {
      leave();
    }
  }

  @SuppressWarnings("unchecked") // streams of one device have the same works
  private ScheduledStream<W> enter(
      Operation operation, @Nullable DataType type, @Nullable Stream given) {
    Arguments.present(type, "type", operation);
    Stream stream = Arguments.present(given, "stream", operation);
    enterAlone(operation.label());
    try {
      requireReady();
      if (!(stream instanceof ScheduledStream<?> own) || own.device() != device) {
        throw new InvalidArgumentException(
            operation.label()
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
      return (ScheduledStream<W>) own;
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

  /** Takes a work from the FIFO and fills it in. */
  private W take(
      @Nullable GroupScope group,
      ScheduledStream<W> stream,
      Operation operation,
      DataType type,
      ReduceOp op,
      long count,
      int root,
      @Nullable DeviceBuffer send,
      @Nullable DeviceBuffer recv) {
    DeviceBuffer source = operation.sends(rank == root) ? send : null;
    DeviceBuffer target = operation.receives(rank == root) ? recv : null;
    requireOwn(source, "send", operation);
    requireOwn(target, "receive", operation);
    requireOwn(op.deviceScalar(), "scalar", operation);
    requireSupported(operation, type, op, count);
    if (group == null) {
      stream.awaitRoom();
    } else {
      group.requireRoom(this, fifo.planLimit());
    }
    W work = stream.isCapturing() ? newCapturedWork() : takeFromFifo();
    work.set(operation, type, op, root, stream, rank, nranks);
    work.count = count;
    work.send = source;
    work.recv = target;
    return work;
  }

  /** Hands a work to the open group or straight to its stream. */
  private void start(W work, @Nullable GroupScope group, ScheduledStream<W> stream) {
    if (group != null) {
      group.add(work);
      return;
    }
    if (!work.isCaptured()) {
      submit(work);
    }
    stream.publish(work);
  }

  private void requireOwn(@Nullable DeviceBuffer buffer, String name, Operation operation) {
    if (buffer == null) {
      return;
    }
    if (!isOwn(buffer)) {
      throw new InvalidArgumentException(
          operation.label() + ": the " + name + " buffer is a " + buffer.getClass().getName(),
          "pass a buffer that communicator.device() allocated or wrapped");
    }
    requireQuiet(buffer, operation);
  }

  private W takeFromFifo() {
    if (!fifo.hasRoom()) {
      awaitFifoRoom();
    }
    return fifo.take();
  }

  /** Reuses the slot's array: the caller may change his own as soon as the call returns. */
  private static long[] copy(long[] from, long[] to) {
    if (to.length != from.length) {
      return from.clone();
    }
    System.arraycopy(from, 0, to, 0, from.length);
    return to;
  }

  /** Where blocks start that follow each other. */
  private static long[] starts(long[] counts, long[] reused) {
    long[] starts = reused.length != counts.length ? new long[counts.length] : reused;
    long start = 0;
    for (int k = 0; k < counts.length; k++) {
      starts[k] = start;
      start += counts[k];
    }
    return starts;
  }
}

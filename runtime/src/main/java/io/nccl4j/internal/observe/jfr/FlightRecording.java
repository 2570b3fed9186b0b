package io.nccl4j.internal.observe.jfr;

import io.nccl4j.NcclException;
import io.nccl4j.internal.observe.Observed;
import io.nccl4j.internal.observe.Recorder;
import java.util.List;
import java.util.stream.Collectors;
import jdk.jfr.FlightRecorder;
import org.jspecify.annotations.Nullable;

/**
 * Events of the flight recorder. The first event that is made starts the recorder, which takes long
 * and loads many classes: there is none before somebody else has started it, for a recording.
 */
public final class FlightRecording implements Recorder {
  /** Initialized with the recorder. What is wanted is asked of one event of each kind. */
  private static final class Kinds {
    static final CollectiveEvent COLLECTIVE = new CollectiveEvent();
    static final MessageEvent MESSAGE = new MessageEvent();
    static final StalledEvent STALL = new StalledEvent();
    static final AllocationEvent ALLOCATION = new AllocationEvent();
    static final GraphLaunchEvent GRAPH_LAUNCH = new GraphLaunchEvent();
  }

  /** What a thread is about to join. */
  private static final ThreadLocal<@Nullable Join> JOINING = new ThreadLocal<>();

  /** What a time is that is not known: the tools show N/A. */
  static final long UNKNOWN = Long.MIN_VALUE;

  /** Made by name; throws {@link LinkageError} where there is no flight recorder. */
  public FlightRecording() {
    boolean ignored = isStarted();
  }

  private static boolean isStarted() {
    return FlightRecorder.isInitialized();
  }

  // ---- operations

  @Override
  public boolean wantsOperations() {
    return isStarted() && (Kinds.COLLECTIVE.isEnabled() || Kinds.MESSAGE.isEnabled());
  }

  @Override
  public boolean wants(boolean isCollective) {
    return isStarted() && (isCollective ? Kinds.COLLECTIVE.isEnabled() : Kinds.MESSAGE.isEnabled());
  }

  @Override
  public OperationEvent newOperation(boolean isCollective) {
    return new Operation(isCollective ? new CollectiveEvent() : new MessageEvent());
  }

  /** One object for all uses of a place in the FIFO. */
  private static final class Operation implements OperationEvent {
    private final OperationFields event;

    Operation(OperationFields event) {
      this.event = event;
    }

    @Override
    public void submitted() {
      event.begin();
    }

    @Override
    public void ended(Observed of, long nanos, long waitNanos, boolean isComplete) {
      event.end();
      if (event.shouldCommit()) {
        event.set(of, nanos, waitNanos, isComplete);
        event.commit();
      }
    }
  }

  @Override
  public void launched(int operations, long streamNumber) {
    if (isStarted() && Kinds.GRAPH_LAUNCH.isEnabled()) {
      GraphLaunchEvent event = new GraphLaunchEvent();
      event.operations = operations;
      event.stream = streamNumber;
      event.commit();
    }
  }

  // ---- waits

  @Override
  public boolean wantsStalls() {
    return isStarted() && Kinds.STALL.isEnabled();
  }

  @Override
  public StallEvent newStall() {
    return new Stall();
  }

  private static final class Stall implements StallEvent {
    private StalledEvent event = begun();

    private static StalledEvent begun() {
      StalledEvent event = new StalledEvent();
      event.begin();
      return event;
    }

    @Override
    public boolean look(Observed of, long waitedNanos) {
      event.end();
      if (!event.shouldCommit()) {
        return false;
      }
      event.operation = of.label();
      event.communicator = of.communicatorName();
      event.rank = of.rank();
      event.sequence = of.sequence();
      event.waited = waitedNanos;
      event.waitingFor = of.awaited();
      event.commit();
      event = begun();
      return true;
    }
  }

  // ---- what is rare

  @Override
  public boolean wantsAllocations() {
    return isStarted() && Kinds.ALLOCATION.isEnabled();
  }

  @Override
  public void allocated(String owner, String purpose, String place, long bytes) {
    AllocationEvent event = new AllocationEvent();
    event.owner = owner;
    event.purpose = purpose;
    event.place = place;
    event.bytes = bytes;
    event.commit();
  }

  @Override
  public void failed(String name, int rank, NcclException cause) {
    if (isStarted()) {
      FailureEvent event = new FailureEvent();
      event.communicator = name;
      event.rank = rank;
      event.type = cause.getClass().getName();
      event.message = String.valueOf(cause.getMessage());
      event.failedRanks = text(cause.failedRanks());
      event.commit();
    }
  }

  @Override
  public JoinEvent join(String how) {
    if (!isStarted()) {
      return Recorder.super.join(how);
    }
    Join join = new Join(how);
    JOINING.set(join);
    return join;
  }

  @Override
  public void met() {
    Join join = JOINING.get();
    if (join != null) {
      join.met();
    }
  }

  private static final class Join implements JoinEvent {
    private final JoinedEvent event = new JoinedEvent();
    private final long begun = System.nanoTime();

    Join(String how) {
      event.call = how;
      event.meetingTime = UNKNOWN;
      event.begin();
    }

    void met() {
      event.meetingTime = System.nanoTime() - begun;
    }

    @Override
    public void joined(String name, String backend, List<Integer> ranks, int nranks) {
      event.communicator = name;
      event.backend = backend;
      event.ownRanks = text(ranks);
      event.ranks = nranks;
      end();
    }

    @Override
    public void failed(Throwable cause) {
      event.failure = cause.toString();
      end();
    }

    private void end() {
      JOINING.remove();
      event.commit();
    }
  }

  @Override
  public ConnectEvent connect(String network, String address, boolean dials) {
    return isStarted()
        ? new Connect(network, address, dials)
        : Recorder.super.connect(network, address, dials);
  }

  private static final class Connect implements ConnectEvent {
    private final ConnectedEvent event = new ConnectedEvent();
    private boolean isOver;

    Connect(String network, String address, boolean dials) {
      event.network = network;
      event.address = address;
      event.dialed = dials;
      event.begin();
    }

    @Override
    public void ended(String failure) {
      if (!isOver) {
        isOver = true;
        event.failure = failure;
        event.commit();
      }
    }
  }

  private static String text(List<Integer> ranks) {
    return ranks.stream().map(String::valueOf).collect(Collectors.joining(", "));
  }
}

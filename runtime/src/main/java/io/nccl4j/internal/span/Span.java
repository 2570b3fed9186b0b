package io.nccl4j.internal.span;

import io.nccl4j.CommunicatorHosts;
import io.nccl4j.InternalErrorException;
import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.engine.Step;
import io.nccl4j.internal.host.memory.HostBuffer;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.machine.LocalAddress;
import io.nccl4j.internal.net.Network;
import io.nccl4j.internal.net.NetworkDaemon;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.PortCell;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Party;
import io.nccl4j.internal.operation.Shape;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPurpose;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * One rank's way to the ranks of other hosts, through a port into the network. It owns the port,
 * and memory for frames and what is to be folded, until it is closed.
 *
 * <p>Operations in which all receivers get the same, or a reduction, are carried by one or some
 * ranks of each host for all ({@link CarriedExchange}); where each pair of ranks has a block of its
 * own, each rank carries its own ({@link PairExchange}).
 */
public final class Span extends Outside {
  private static final NetworkDaemon DAEMON = new NetworkDaemon(Span::hopeless);
  private static final long FAREWELL_NANOS = 200_000_000;

  private static final long ASKING_NANOS = 50_000;

  /** Most bytes of a message that is sent early: the receiver keeps it, and copies it once more. */
  private static final int EARLY_MESSAGE_BYTES = 8 << 10;

  private final Hosts hosts;
  private final int rank;
  private final int host;
  private final long closeNanos;
  private final Network network;
  private final PortCell cell;
  private final Port port;
  private final Wire wire;
  private final Faults faults;
  private final News news;
  private final PairExchange pairs;
  private final EarlySends early;
  private final Refill messages;
  private final int[] receiver = new int[1];
  private final List<HostHeap.Block> blocks = new ArrayList<>();

  @SuppressWarnings("NullAway.Init") // by begin
  private MemoryBook.Account account;

  private @Nullable CarriedExchange carried;

  /** The thread that owns the port in a call of this class. */
  private volatile @Nullable Thread owner;

  private volatile boolean isClosed;

  /** A rank that asks is about to fail: its own reason says more than who is gone by now. */
  private volatile boolean isAsking;

  /**
   * A rank's way to the others.
   *
   * @param network has the ports of communicators that are split off
   * @param port its own; this closes it
   * @param addresses of the ports of all ranks
   * @param closeNanos how long what was sent may take to leave when this is closed
   */
  public Span(
      Hosts hosts, int rank, Network network, Port port, List<byte[]> addresses, long closeNanos) {
    this.network = network;
    this.hosts = hosts;
    this.rank = rank;
    this.port = port;
    this.closeNanos = closeNanos;
    host = hosts.of(rank);
    int nranks = hosts.nranks();
    for (int k = 0; k < nranks; k++) {
      if (isElsewhere(k)) {
        port.addPeer(k, addresses.get(k));
      }
    }
    faults = new Faults(port, hosts, rank);
    news = new News(hosts, host, port, faults);
    wire = new Wire(port, nranks, this::memory, faults, news);
    cell = new PortCell(port, wire, this::atEnd);
    early = new EarlySends(wire);
    messages = new Refill(wire, Wire.MESSAGES);
    pairs = new PairExchange(this, wire, early, hosts, rank);
  }

  @Override
  public void begin(MemoryBook.Account from, Wording words, Own of) {
    account = from;
    faults.begin(wire, cell, of, words);
    news.begin(wire, of);
    if (hosts.place(rank) < WindowPlan.mostRails(hosts)) {
      carried = new CarriedExchange(this, wire, early, hosts, rank);
    }
    if (rank == hosts.leader(host)) {
      for (int h = host + 1; h < hosts.count(); h++) {
        port.watch(hosts.leader(h));
      }
    }
    DAEMON.add(cell);
  }

  /** Memory until this is closed. */
  Wire.Frames memory(long bytes) {
    HostHeap heap = ProcessMemory.self().heap();
    HostHeap.Block block = heap.allocate(account, MemoryPurpose.NETWORK, bytes);
    blocks.add(block);
    return new Wire.Frames(block.segment(), block.offset());
  }

  boolean isElsewhere(int k) {
    return hosts.of(k) != host;
  }

  /** Says which operation a transfer belongs to. */
  static void sign(Transfer t, EngineWork w) {
    t.word = w.signature;
    t.code = w.code();
    t.count = w.count;
    t.call = w.seq;
    t.elementBytes = w.type.byteSize();
  }

  // ---- operations

  @Override
  protected boolean isCarried(EngineWork w) {
    Operation operation = w.operation;
    return operation.reducing()
        || operation.isShared()
        || operation.sent() == Shape.NOTHING
        || operation.senders() == Party.ALL
            && operation.receivers() == Party.ALL
            && operation.sent() == Shape.ONE
            && operation.received() == Shape.EACH;
  }

  @Override
  protected int move(EngineWork w, CollectiveEngine engine, boolean isFollowed) {
    if (!tryOwn()) {
      return Step.BLOCKED;
    }
    int result = Step.BLOCKED;
    try {
      result = moveOwned(w, engine);
      return result;
    } finally {
      disown(result == Step.DONE && (isFollowed && w.timesBlocked == 0 || early.isAheadOf(w)));
    }
  }

  private int moveOwned(EngineWork w, CollectiveEngine engine) {
    boolean all = isCarried(w);
    CarriedExchange leading = all ? carried : null;
    wire.call(w);
    faults.check(w);
    if (faults.isSuspicious()) {
      // It goes no further: the peer's answer, or its silence, ends the operation.
      return poll(w);
    }
    if (all && leading == null) {
      if (isLast(w) && !early.wasSent(w)) {
        early.sent(w);
      }
      return Step.DONE;
    }
    // What this rank has for others is sent before anything is read.
    int result = step(w, engine, leading);
    if (result == Step.BLOCKED) {
      result = poll(w);
      if (result == Step.MOVED && !faults.isSuspicious()) {
        result = step(w, engine, leading);
        result = result == Step.BLOCKED ? Step.MOVED : result;
      }
    }
    faults.check(w);
    return result;
  }

  /** Gets on with a collective that {@code leading} carries, or pairs of ranks if it is null. */
  private int step(EngineWork w, CollectiveEngine engine, @Nullable CarriedExchange leading) {
    int result =
        leading != null
            ? leading.step(w, engine, piece(w), isStaged(w))
            : pairs.step(w, engine, isLast(w));
    if (!early.wasSent(w)
        && (result == Step.DONE ? isLast(w) : canSendEarly(w) && hasSent(leading))) {
      early.sent(w);
    }
    return result;
  }

  private static boolean isLast(EngineWork w) {
    return !isStaged(w) || piece(w) + pieceLength(w) >= longest(w);
  }

  private static boolean hasSent(@Nullable CarriedExchange leading) {
    return leading == null || leading.hasSent();
  }

  @Override
  protected boolean canSendEarly(EngineWork w) {
    return EarlySends.canSend(w, isCarried(w) ? WindowPlan.transfers(hosts, w) : 1);
  }

  @Override
  protected boolean sendEarly(EngineWork w, CollectiveEngine engine, boolean first) {
    if (!tryOwn()) {
      return false;
    }
    try {
      return faults.isEmpty() && early.send(w, engine, sender(w), first);
    } finally {
      disownUnflushed();
    }
  }

  /** What sends a collective before its turn; null if nothing leaves here. */
  private @Nullable EarlySender sender(EngineWork w) {
    if (!isCarried(w)) {
      return pairs;
    }
    CarriedExchange leading = carried;
    return leading == null ? null : leading.ahead();
  }

  @Override
  public void flush() {
    cell.flush();
  }

  // ---- messages

  @Override
  public int step(EngineWork w, boolean isFollowed) {
    if (!tryOwn()) {
      return Step.BLOCKED;
    }
    int result = Step.BLOCKED;
    try {
      result = stepOwned(w);
      return result;
    } finally {
      disown(result == Step.DONE && isFollowed && w.timesBlocked == 0);
    }
  }

  private int stepOwned(EngineWork w) {
    faults.check(w);
    w.blockedOn = w.root;
    if (isNew(w) && beginMessage(w) && isLargeSend(w)) {
      // It takes long: the receives of its group ask for their data first.
      return Step.MOVED;
    }
    if (!isNew(w) && wire.isDone(wire.at(transfer(w)))) {
      return Step.DONE;
    }
    int result = poll(w);
    if (isUnderWay(w) && wire.isDone(wire.at(transfer(w)))) {
      result = Step.DONE;
    }
    faults.check(w);
    return result;
  }

  @Override
  public boolean sendEarly(EngineWork message) {
    if (!tryOwn()) {
      return false;
    }
    boolean isSent = false;
    try {
      isSent = faults.isEmpty() && isNext(message) && beginEarly(message);
      return isSent;
    } finally {
      disown(isSent);
    }
  }

  private boolean beginEarly(EngineWork w) {
    long bytes = w.count * w.type.byteSize();
    receiver[0] = w.root;
    return bytes <= EARLY_MESSAGE_BYTES
        && messages.begins(receiver, 1, bytes, false)
        && beginMessage(w);
  }

  private boolean isLargeSend(EngineWork w) {
    return w.operation == Operation.SEND && !wire.at(transfer(w)).isSmall();
  }

  /** Whether a message has begun; begins it if it can. */
  private boolean isUnderWay(EngineWork w) {
    return !isNew(w) || beginMessage(w);
  }

  /** Operations of a lane begin in their order, which streams may not keep by themselves. */
  private boolean beginMessage(EngineWork w) {
    boolean sends = w.operation == Operation.SEND;
    int peer = w.root;
    boolean canBegin =
        sends ? wire.canSend(peer, Wire.MESSAGES) : wire.canReceive(peer, Wire.MESSAGES);
    if (!canBegin || !isNext(w)) {
      return false;
    }
    Transfer t = sends ? wire.nextSend(peer, Wire.MESSAGES) : wire.nextReceive(peer, Wire.MESSAGES);
    HostBuffer buffer = sends ? w.sendBuffer() : w.recvBuffer();
    t.memory = buffer.segment();
    t.offset = buffer.offset();
    t.bytes = w.count * w.type.byteSize();
    sign(t, w);
    wire.begin(t);
    setTransfer(w, wire.number(t));
    return true;
  }

  private boolean isNext(EngineWork w) {
    return wire.begun(w.root, Wire.MESSAGES, w.operation == Operation.SEND) + 1 == (int) w.seq;
  }

  /** Sends what is ready and takes what has arrived: {@link Step#MOVED} if anything has. */
  private int poll(EngineWork w) {
    int peer = faults.isSuspicious() ? faults.suspect() : w.blockedOn;
    boolean waits = peer >= 0 && isElsewhere(peer);
    if (cell.poll(waits ? peer : Port.ANY) > 0) {
      faults.check(w);
      return Step.MOVED;
    }
    w.blockedOn = peer;
    return waits && faults.takeLast(peer, w) ? Step.MOVED : Step.BLOCKED;
  }

  // ---- whose the port is

  private boolean tryOwn() {
    if (isClosed || !cell.tryOwn()) {
      return false;
    }
    owner = Thread.currentThread();
    return true;
  }

  private void disown() {
    owner = null;
    cell.disown();
  }

  /**
   * Gives the port back after a step of an operation.
   *
   * @param together whether the next operation takes a step at once, and its data leaves with it
   */
  private void disown(boolean together) {
    if (together) {
      disownUnflushed();
    } else {
      disown();
    }
  }

  private void disownUnflushed() {
    owner = null;
    cell.disownUnflushed();
  }

  // ---- failure

  @Override
  public void tell() {
    news.add();
    if (owner != Thread.currentThread() && tryOwn()) {
      disown();
    }
  }

  /** What every owner does last, including the daemon. */
  private void atEnd() {
    if (isClosed) {
      return;
    }
    if (!isAsking) {
      faults.look();
    }
    news.tell();
  }

  @Override
  public void look() {
    if (owner != Thread.currentThread() && tryOwn()) {
      try {
        int ignored = cell.poll();
      } finally {
        disown();
      }
    }
  }

  @Override
  public void lookNowAndThen() {
    if (!cell.wasPolled()) {
      look();
    }
  }

  @Override
  public void ask(long patienceNanos) {
    if (owner == Thread.currentThread()) {
      return;
    }
    isAsking = true;
    long start = System.nanoTime();
    boolean isOut = false;
    do {
      if (tryOwn()) {
        try {
          if (!isOut) {
            isOut = true;
            news.ask();
          }
          int ignored = cell.poll();
        } finally {
          disown();
        }
        if (news.haveAllAnswered()) {
          return;
        }
      }
      LockSupport.parkNanos(ASKING_NANOS);
    } while (!isClosed && System.nanoTime() - start < patienceNanos);
  }

  @Override
  public Answer answer(int k) {
    return news.answer(k);
  }

  @Override
  public CommunicatorHosts hosts() {
    InetAddress address = network.address();
    return new CommunicatorHosts(
        IntStream.range(0, hosts.count())
            .mapToObj(h -> IntStream.of(hosts.ranks(h)).boxed().toList())
            .toList(),
        network.name(),
        LocalAddress.interfaceOf(address),
        address.getHostAddress());
  }

  @Override
  public int ranksOnMachine() {
    return hosts.onMachineOf(rank);
  }

  // ---- splitting

  @Override
  public Offer offer() {
    Port next = network.newPort();
    return new Offer() {
      @Override
      public byte[] address() {
        return next.address();
      }

      @Override
      public Outside take(int newRank, int[] members, List<byte[]> addresses) {
        return new Span(hosts.part(members), newRank, network, next, addresses, closeNanos);
      }

      @Override
      public void giveBack() {
        next.close();
      }
    };
  }

  // ---- its end

  @Override
  public void abandon() {
    // The failure may be seen, and this work dropped, before tell() is called.
    news.add();
    end(FAREWELL_NANOS);
  }

  @Override
  public void close() {
    end(closeNanos);
  }

  private void end(long patienceNanos) {
    while (!tryOwn()) {
      if (isClosed) {
        return;
      }
      Thread.yield();
    }
    try {
      news.tell();
      long start = System.nanoTime();
      while (!port.isFlushed() && System.nanoTime() - start < patienceNanos) {
        if (cell.poll() == 0) {
          LockSupport.parkNanos(10_000);
        }
      }
      DAEMON.remove(cell);
      port.close();
      isClosed = true;
      HostHeap heap = ProcessMemory.self().heap();
      blocks.forEach(heap::free);
      blocks.clear();
    } finally {
      owner = null;
      if (!isClosed) {
        cell.disown();
      }
    }
  }

  private static void hopeless(Throwable cause) {
    throw new InternalErrorException("the network daemon failed: " + cause, "please report this")
        .causedBy(cause);
  }
}

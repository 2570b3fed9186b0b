package io.nccl4j.internal.net.ucx;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.net.MessageCheck;
import io.nccl4j.internal.net.PeerTable;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.net.RequestTable;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A worker of UCX that sends active messages, and its endpoints.
 *
 * <p>The header of a message says whom it is from: it holds the port's id, which only those know
 * who were given the port's address. Small messages of a step leave as one message, a frame. Data
 * that UCX announces goes from the peer's memory to where it is wanted; other data comes with the
 * message, and is copied once.
 */
final class UcxPort implements Port, UcpWorker.Listener {
  private static final Landing NOBODY =
      (peer, tag, memory, offset, bytes) -> {
        throw new IllegalStateException("a message has come outside of a poll");
      };

  /** Most rounds of progress in one poll. */
  private static final int ROUNDS = 16;

  /** Data up to this size is not announced: a receive is there already, and a copy is cheaper. */
  private static final long EAGER_BYTES = 128 << 10;

  /** How long a port that closes waits for data that is under way. */
  private static final long DATA_NANOS = 100_000_000;

  /**
   * How long its endpoints stay open in the background, so that peers hear that it is closed. UCX
   * drops what a peer has not read of a connection that has ended. Peers that nobody polls are
   * polled by their daemon every few ms, later on a busy machine.
   */
  private static final long FAREWELL_NANOS = 1_000_000_000;

  /** How long a port that is aborted waits for its last messages to leave. */
  private static final long ABORT_NANOS = 10_000_000;

  /** How long a worker must be without events before it is destroyed. */
  private static final long QUIET_NANOS = 20_000_000;

  /** When it is destroyed in any case. */
  private static final long MOST_NANOS = 2_000_000_000;

  private static final SecureRandom RANDOM = new SecureRandom();
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

  /** Data that was announced, and where it is to go. */
  private record Announced(UcxPeer from, UcxTransfer to, long descriptor) {}

  private final Ucp context;
  private final UcpWorker worker;
  private final UcxAddress address;
  private final Arena arena = Arena.ofShared();
  private final MemorySegment everything = MemoryAccess.everything();
  private final UcxOutbox outbox;
  private final UcxEndpoints endpoints;
  private final UcxEarly early = new UcxEarly();
  private final PeerTable<UcxPeer> peers = new PeerTable<>();

  private final RequestTable<UcxTransfer> transfers =
      new RequestTable<>(
          index -> new UcxTransfer(index, arena.allocate(UcxHeader.BYTES, Long.BYTES).address()));

  /** What arrived during progress and is seen to after it. */
  private final List<Announced> announced = new ArrayList<>();

  /** Peers that were heard of, and are not connected to yet. */
  private final List<UcxPeer> heard = new ArrayList<>();

  /** The peer that a message came from last, and often comes from next. */
  private @Nullable UcxPeer latest;

  private Landing landing = NOBODY;
  private int moved;
  private int failures;
  private boolean isClosed;

  /** Whether it has closed all its endpoints, or begun to. */
  private boolean isDropped;

  private long closedAt;
  private long quietSince;

  UcxPort(Ucp context, Duration connectTimeout) {
    this.context = context;
    UcpWorker made = null;
    UcxAddress own = null;
    try {
      made = context.newWorker(this);
      own = new UcxAddress(RANDOM.nextLong(), made.address());
      if (own.toBytes().length > ADDRESS_BYTES) {
        throw new SystemErrorException(
            "UCX's address of this process has " + own.worker().length + " bytes: it uses too much",
            "name the devices to use in UCX_NET_DEVICES");
      }
    } catch (IllegalStateException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "UCX has no way into the network: " + e.getMessage(),
                  "check UCX_NET_DEVICES and UCX_TLS; UCX_LOG_LEVEL=info shows what it finds")
              .causedBy(e);
    } finally {
      if (own == null || made == null) {
        if (made != null) {
          made.close();
        }
        context.close();
        arena.close();
      }
    }
    worker = made;
    address = own;
    outbox = new UcxOutbox(worker, address.id(), arena);
    endpoints = new UcxEndpoints(worker, outbox, connectTimeout.toNanos(), this::failed);
  }

  // ---- peers

  @Override
  public byte[] address() {
    return address.toBytes();
  }

  @Override
  public void addPeer(int peer, byte[] peerAddress) {
    own();
    peers.requireFree(peer);
    UcxPeer added = new UcxPeer(peer, UcxAddress.of(peerAddress));
    peers.add(peer, added);
    if (early.isFrom(added.address.id())) {
      hear(added);
    }
  }

  /** Connects: UCX lets the system ask the other end's system, but not while data is out. */
  @Override
  public void watch(int peer) {
    own();
    endpoints.open(peers.get(peer));
  }

  private @Nullable UcxPeer sender(long id) {
    UcxPeer last = latest;
    if (last != null && last.address.id() == id) {
      return last;
    }
    for (UcxPeer peer : peers.all()) {
      if (peer.address.id() == id) {
        latest = peer;
        return peer;
      }
    }
    return null;
  }

  /** A peer to which there is an endpoint; null if it has failed. */
  private @Nullable UcxPeer connected(int number) {
    UcxPeer peer = peers.get(number);
    endpoints.open(peer);
    return peer.error() == null ? peer : null;
  }

  /** A port connects to peers it hears from: otherwise it would not notice their end. */
  private void hear(UcxPeer peer) {
    if (!heard.contains(peer)) {
      heard.add(peer);
    }
  }

  private void failed(UcxPeer peer, String why) {
    if (peer.error() == null) {
      failures++;
      end(peer, why);
    }
  }

  /** Nothing goes to a peer or comes from it any more. */
  private void end(UcxPeer peer, String why) {
    moved++;
    peer.fail(why);
    outbox.drop(peer);
    endpoints.close(peer);
  }

  // ---- what goes

  @Override
  public void post(
      int peer,
      long tag,
      MemorySegment head,
      long headOffset,
      long headBytes,
      MemorySegment body,
      long bodyOffset,
      long bodyBytes) {
    own();
    MessageCheck.posted(tag, headBytes + bodyBytes);
    UcxPeer to = connected(peer);
    if (to != null) {
      outbox.post(to, tag, head, headOffset, headBytes, body, bodyOffset, bodyBytes);
    }
  }

  @Override
  public void flush() {
    own();
    outbox.flush();
  }

  @Override
  public long send(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    own();
    MessageCheck.sent(tag, bytes);
    UcxPeer to = connected(peer);
    if (to != null) {
      outbox.flush(to);
    }
    if (to == null || !to.isOpen()) {
      return transfers.failed();
    }
    UcxTransfer data = transfers.take();
    long number = data.beginSend(to, tag, nativeAddress(memory, offset, bytes), bytes);
    int protocol = bytes <= EAGER_BYTES ? UcpWorker.EAGER : UcpWorker.ANY_PROTOCOL;
    data.moving(outbox.send(to, data.header, tag, data.memory(), bytes, protocol));
    return number;
  }

  private static long nativeAddress(MemorySegment memory, long offset, long bytes) {
    if (!memory.isNative()) {
      throw new IllegalArgumentException("UCX moves no data of the Java heap");
    }
    if (offset < 0 || bytes > memory.byteSize() - offset) {
      throw new IndexOutOfBoundsException(
          bytes + " bytes at " + offset + " of " + memory.byteSize());
    }
    return memory.address() + offset;
  }

  // ---- what comes

  @Override
  public long receive(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    own();
    MessageCheck.received(tag, bytes);
    UcxPeer from = peers.get(peer);
    if (from.error() != null) {
      return transfers.failed();
    }
    UcxTransfer data = transfers.take();
    long number = data.beginReceive(from, tag, nativeAddress(memory, offset, bytes), bytes);
    from.receives.add(data);
    return number;
  }

  @Override
  public void arrived(long header, long headerBytes, long data, long bytes) {
    if (headerBytes != UcxHeader.BYTES) {
      return;
    }
    UcxPeer from = sender(UcxHeader.sender(header));
    long tag = UcxHeader.tag(header);
    if (isClosed) {
      if (from != null && from.error() == null && UcxHeader.isLast(tag)) {
        end(from, "it has closed its port");
      }
    } else if (from == null) {
      early.keep(header, data, bytes);
    } else if (isNext(from, UcxHeader.number(header))) {
      take(from, tag, everything, data, bytes);
    }
  }

  @Override
  public boolean announced(long header, long headerBytes, long descriptor, long bytes) {
    UcxPeer from =
        !isClosed && headerBytes == UcxHeader.BYTES ? sender(UcxHeader.sender(header)) : null;
    if (from == null || !isNext(from, UcxHeader.number(header))) {
      return false;
    }
    UcxTransfer data = wanted(from, UcxHeader.tag(header), bytes);
    if (data == null) {
      return false;
    }
    moved++;
    announced.add(new Announced(from, data, descriptor));
    return true;
  }

  /** Whether a message is the one after the last, of a peer that has not failed. */
  private boolean isNext(UcxPeer from, long number) {
    if (from.error() != null) {
      return false;
    }
    if (from.endpoint == UcxPeer.NONE) {
      hear(from);
    }
    if (number != from.came) {
      failed(from, "its messages come in another order: set UCX_MAX_EAGER_RAILS=1");
      return false;
    }
    from.came++;
    return true;
  }

  private void take(UcxPeer from, long tag, MemorySegment memory, long at, long bytes) {
    if (tag == UcxHeader.FRAME) {
      takeFrame(from, memory, at, at + bytes);
    } else if (tag == UcxHeader.FAREWELL) {
      end(from, "it has closed its port");
    } else if (tag == UcxHeader.ABORT) {
      failed(from, "its connection has ended: its port was aborted");
    } else {
      UcxTransfer data = wanted(from, tag, bytes);
      if (data != null) {
        moved++;
        MemorySegment.copy(memory, at, everything, data.memory(), bytes);
        data.end(COMPLETE);
      }
    }
  }

  private void takeFrame(UcxPeer from, MemorySegment memory, long begin, long end) {
    long at = begin;
    while (end - at >= UcxFrame.MESSAGE_HEADER_BYTES && from.error() == null) {
      long tag = memory.get(LONG, at);
      long bytes = memory.get(LONG, at + Long.BYTES);
      at += UcxFrame.MESSAGE_HEADER_BYTES;
      if (MessageCheck.isData(tag) || bytes < 0 || bytes > end - at) {
        failed(from, "it has sent a message of " + bytes + " bytes where " + (end - at) + " are");
        return;
      }
      moved++;
      landing.landed(from.number, tag, memory, at, bytes);
      at += UcxFrame.padded(bytes);
    }
  }

  private @Nullable UcxTransfer wanted(UcxPeer from, long tag, long bytes) {
    UcxTransfer data = from.receives.take(tag);
    if (data != null && data.bytes() == bytes) {
      return data;
    }
    if (data != null) {
      data.end(FAILED);
    }
    failed(
        from,
        "it has sent data of "
            + bytes
            + " bytes"
            + (data == null ? ", which nothing waits for" : ", not " + data.bytes()));
    return null;
  }

  @Override
  public void failed(long of, byte status) {
    failed(
        peers.get((int) of),
        "its connection has ended: its process died, or its machine is out of reach ("
            + Ucp.text(status)
            + ")");
  }

  // ---- progress

  @Override
  public int state(long request) {
    return transfers.state(request);
  }

  @Override
  public int poll(Landing to, int awaited) {
    own();
    moved = 0;
    landing = to;
    try {
      greet();
      outbox.flush();
      for (int round = 0; round < ROUNDS && worker.progress() != 0; round++) {
        moved++;
        startReceives();
      }
      startReceives();
      outbox.settle();
      greet();
      endpoints.settle();
    } finally {
      landing = NOBODY;
    }
    return moved + outbox.moved();
  }

  private void startReceives() {
    if (announced.isEmpty()) {
      return;
    }
    for (Announced one : announced) {
      if (one.from.error() == null && !isClosed) {
        UcxTransfer data = one.to;
        data.moving(worker.receive(one.descriptor, data.memory(), data.bytes()));
      } else {
        worker.refuse(one.descriptor);
        one.to.end(FAILED);
      }
    }
    announced.clear();
  }

  /** Connects to those who were heard of, and takes what they have sent before they were known. */
  private void greet() {
    while (!heard.isEmpty()) {
      UcxPeer peer = heard.removeLast();
      endpoints.open(peer);
      for (UcxEarly.Message one : early.take(peer.address.id())) {
        if (isNext(peer, one.number())) {
          MemorySegment content = MemorySegment.ofArray(one.content());
          take(peer, one.tag(), content, 0, one.content().length);
        }
      }
    }
  }

  @Override
  public boolean isConnected(int peer) {
    return peers.get(peer).isOpen();
  }

  @Override
  public int failures() {
    return failures;
  }

  @Override
  public @Nullable String error(int peer) {
    return peers.get(peer).error();
  }

  /** What UCX has taken leaves before the farewell does, which {@link #close} waits for. */
  @Override
  public boolean isFlushed() {
    own();
    return outbox.isFlushed() && transfers.all().stream().noneMatch(UcxTransfer::isSending);
  }

  // ---- the end

  @Override
  public void close() {
    end(UcxHeader.FAREWELL);
  }

  @Override
  public void abort() {
    end(UcxHeader.ABORT);
  }

  private void end(long lastWord) {
    if (isClosed) {
      return;
    }
    isClosed = true;
    closedAt = System.nanoTime();
    quietSince = closedAt;
    boolean isAborted = lastWord == UcxHeader.ABORT;
    if (!isAborted) {
      outbox.flush();
    }
    List<UcxTransfer> last = new ArrayList<>();
    for (UcxPeer peer : peers.all()) {
      if (peer.isOpen()) {
        UcxTransfer word = transfers.take();
        long ignored = word.beginSend(peer, lastWord, 0, 0);
        word.moving(outbox.send(peer, word.header, lastWord, 0, 0, UcpWorker.EAGER));
        last.add(word);
      }
    }
    if (isAborted) {
      progressUntil(() -> last.stream().noneMatch(UcxTransfer::isMoving), ABORT_NANOS);
    } else {
      // What is under way may end before that is heard; the users' memory is theirs again then.
      progressUntil(() -> !isMoving() || isAlone(), DATA_NANOS);
    }
    if (isAborted || isMoving()) {
      drop();
      progressUntil(endpoints::areClosed, MOST_NANOS);
    }
    ClosedPorts.add(this);
  }

  /** Whether UCX may touch the memory of users. */
  private boolean isMoving() {
    for (UcxTransfer transfer : transfers.all()) {
      if (transfer.isMoving()) {
        return true;
      }
    }
    return false;
  }

  private void drop() {
    isDropped = true;
    for (UcxPeer peer : peers.all()) {
      if (peer.error() == null) {
        end(peer, "this port is closed");
      }
    }
  }

  /** Goes on to close a port that is closed for its users, and says when it is done. */
  boolean isDestroyed() {
    long now = System.nanoTime();
    if (worker.progress() != 0) {
      quietSince = now;
    }
    startReceives();
    if (!isDropped) {
      if (!isAlone() && now - closedAt < FAREWELL_NANOS) {
        return false;
      }
      drop();
    }
    boolean isOver = endpoints.areClosed() && now - quietSince > QUIET_NANOS;
    if (!isOver && now - closedAt < MOST_NANOS) {
      return false;
    }
    outbox.close();
    worker.close();
    context.close();
    arena.close();
    return true;
  }

  /** Whether all peers have heard the last message, at which they close their end, or failed. */
  private boolean isAlone() {
    boolean ignored = endpoints.areClosed();
    for (UcxPeer peer : peers.all()) {
      if (peer.isOpen()) {
        return false;
      }
    }
    return true;
  }

  /** Gives UCX a moment: no peer can hold up a port that closes. */
  private void progressUntil(BooleanSupplier done, long nanos) {
    long start = System.nanoTime();
    while (!done.getAsBoolean() && System.nanoTime() - start < nanos) {
      int progress = worker.progress();
      startReceives();
      if (progress == 0) {
        Thread.onSpinWait();
      }
    }
  }

  /** The calling thread owns the port. */
  private void own() {
    if (isClosed) {
      throw new InvalidUsageException("the port is closed", "use it before it is closed");
    }
  }

  @Override
  public String toString() {
    return "port " + Long.toHexString(address.id());
  }
}

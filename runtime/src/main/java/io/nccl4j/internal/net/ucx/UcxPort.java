package io.nccl4j.internal.net.ucx;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.bindings.UcpWorker;
import io.nccl4j.internal.net.Port;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.BooleanSupplier;
import org.jspecify.annotations.Nullable;

/**
 * A worker of UCX that sends active messages, and its endpoints.
 *
 * <p>Whom a message is from, its header says: the id of the port, which only those know who were
 * told its address. Small messages of a step leave as one message, a frame. Data that UCX announces
 * goes from the peer's memory to where it is wanted; other data comes with the message, and is
 * copied once.
 */
final class UcxPort implements Port, UcpWorker.Listener {
  private static final Landing NOBODY =
      (peer, tag, memory, offset, bytes) -> {
        throw new IllegalStateException("a message comes although nobody polls");
      };

  /** Most rounds of progress in one poll. */
  private static final int ROUNDS = 16;

  /** Most bytes that are kept of ports that have no number yet. */
  private static final long EARLY_BYTES = 1 << 20;

  /**
   * How long a port that closes waits for its peers to hear it. UCX drops what a peer has not read
   * of a connection that has ended, so who says why it goes must not go at once. Peers that nobody
   * polls are polled by their daemon, some ten times in this time.
   */
  private static final long FAREWELL_NANOS = 100_000_000;

  /** How long a worker must be without events before it is destroyed, and may be with them. */
  private static final long QUIET_NANOS = 20_000_000;

  private static final long MOST_NANOS = 2_000_000_000;

  private static final SecureRandom RANDOM = new SecureRandom();
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;

  /** A message from a port that has no number yet. */
  private record Early(long sender, long number, long tag, byte[] content) {}

  /** Data that was announced, and where it is to go. */
  private record Announced(UcxPeer from, UcxTransfer to, long descriptor) {}

  private final Ucp context;
  private final UcpWorker worker;
  private final UcxAddress address;
  private final long connectNanos;
  private final Arena arena = Arena.ofShared();
  private final MemorySegment everything = MemoryAccess.everything();

  private final List<@Nullable UcxPeer> peers = new ArrayList<>();
  private final List<UcxTransfer> transfers = new ArrayList<>();
  private final Deque<UcxTransfer> freeTransfers = new ArrayDeque<>();
  private final Deque<UcxFrame> freeFrames = new ArrayDeque<>();

  /** Peers with messages that have not left. */
  private final List<UcxPeer> open = new ArrayList<>();

  /** Frames that UCX has not done with. */
  private final List<UcxFrame> leaving = new ArrayList<>();

  /** Peers whose endpoints are being connected, and those that are being closed. */
  private final List<UcxPeer> connecting = new ArrayList<>();

  private final List<UcxPeer> closing = new ArrayList<>();

  /** What arrived during progress and is seen to after it. */
  private final List<Announced> announced = new ArrayList<>();

  private final List<UcxPeer> heard = new ArrayList<>();
  private final List<Early> early = new ArrayList<>();
  private long earlyBytes;

  /** The peer that a message came from last, and often comes from next. */
  private @Nullable UcxPeer latest;

  private Landing landing = NOBODY;
  private int moved;
  private int failures;
  private long flushing = UcxPeer.NONE;
  private boolean hasSent;
  private boolean isClosed;

  /** Whether it has closed all its endpoints, or begun to. */
  private boolean isDropped;

  private long closedAt;
  private long quietSince;

  UcxPort(Ucp context, Duration connectTimeout) {
    this.context = context;
    connectNanos = connectTimeout.toNanos();
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
  }

  // ---- peers

  @Override
  public byte[] address() {
    return address.toBytes();
  }

  @Override
  public void addPeer(int peer, byte[] peerAddress) {
    own();
    while (peers.size() <= peer) {
      peers.add(null);
    }
    if (peers.get(peer) != null) {
      throw new IllegalArgumentException("peer " + peer + " has an address already");
    }
    UcxPeer added = new UcxPeer(peer, UcxAddress.of(peerAddress));
    peers.set(peer, added);
    if (early.stream().anyMatch(one -> one.sender == added.address.id())) {
      hear(added);
    }
  }

  /** UCX lets the system ask the other end's system; in vain while data is out. */
  @Override
  public void watch(int peer) {
    own();
    connect(peer(peer));
  }

  private UcxPeer peer(int number) {
    UcxPeer peer = number < 0 || number >= peers.size() ? null : peers.get(number);
    if (peer == null) {
      throw new InvalidArgumentException("there is no peer " + number, "add it first");
    }
    return peer;
  }

  private @Nullable UcxPeer sender(long id) {
    UcxPeer last = latest;
    if (last != null && last.address.id() == id) {
      return last;
    }
    for (UcxPeer peer : peers) {
      if (peer != null && peer.address.id() == id) {
        latest = peer;
        return peer;
      }
    }
    return null;
  }

  /** A peer to which there is an endpoint; null if it has failed. */
  private @Nullable UcxPeer connected(int number) {
    UcxPeer peer = peer(number);
    connect(peer);
    return peer.error() == null ? peer : null;
  }

  /** Whoever hears from a peer connects to it: else it would not hear of its end. */
  private void connect(UcxPeer peer) {
    if (peer.endpoint != UcxPeer.NONE || peer.error() != null) {
      return;
    }
    try {
      peer.endpoint = worker.open(peer.address.worker(), peer.number);
    } catch (IllegalStateException e) {
      failed(peer, "it can't be connected to: " + e.getMessage());
      return;
    }
    peer.since = System.nanoTime();
    // A frame of no messages shows the other end who is there.
    UcxFrame hello = frame();
    leave(peer, hello);
    peer.connecting = worker.flush(peer.endpoint);
    connecting.add(peer);
  }

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
    UcxFrame unsent = peer.open;
    if (unsent != null) {
      peer.open = null;
      open.remove(peer);
      unsent.clear();
      freeFrames.push(unsent);
    }
    if (peer.endpoint != UcxPeer.NONE) {
      // Not here: this may be called by UCX itself.
      closing.add(peer);
    }
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
    checkLength(tag, headBytes + bodyBytes);
    if (tag >>> KIND_SHIFT >= DATA) {
      throw new IllegalArgumentException("data is not posted but sent");
    }
    UcxPeer to = connected(peer);
    if (to == null) {
      return;
    }
    UcxFrame frame = to.open;
    if (frame != null && !frame.fits(headBytes + bodyBytes)) {
      flush(to);
      open.remove(to);
      frame = null;
    }
    if (frame == null) {
      frame = frame();
      to.open = frame;
      open.add(to);
    }
    frame.add(tag, head, headOffset, headBytes, body, bodyOffset, bodyBytes);
  }

  private UcxFrame frame() {
    UcxFrame again = freeFrames.poll();
    return again != null ? again : new UcxFrame(arena.allocate(UcxFrame.size(), Long.BYTES));
  }

  @Override
  public void flush() {
    own();
    flushAll();
  }

  private void flushAll() {
    while (!open.isEmpty()) {
      flush(open.removeLast());
    }
  }

  private void flush(UcxPeer peer) {
    UcxFrame frame = peer.open;
    if (frame != null) {
      peer.open = null;
      leave(peer, frame);
    }
  }

  private void leave(UcxPeer peer, UcxFrame frame) {
    if (peer.error() != null) {
      frame.clear();
      freeFrames.push(frame);
      return;
    }
    UcxHeader.write(frame.header(), address.id(), UcxHeader.FRAME, peer.sent++);
    frame.request =
        worker.send(
            peer.endpoint,
            frame.header(),
            UcxHeader.BYTES,
            frame.content(),
            frame.bytes(),
            UcpWorker.EAGER);
    hasSent = true;
    moved++;
    if (UcpWorker.isOver(frame.request)) {
      // Where it has failed, so has the peer, which UCX says by itself.
      frame.clear();
      freeFrames.push(frame);
    } else {
      leaving.add(frame);
    }
  }

  @Override
  public long send(int peer, long tag, MemorySegment memory, long offset, long bytes) {
    own();
    checkLength(tag, bytes);
    if (tag >>> KIND_SHIFT < DATA) {
      throw new IllegalArgumentException("small messages are not sent but posted");
    }
    UcxPeer to = connected(peer);
    if (to == null) {
      return failedRequest();
    }
    if (to.open != null) {
      flush(to);
      open.remove(to);
      if (to.error() != null) {
        return failedRequest();
      }
    }
    UcxTransfer data = transfer();
    long number = data.begin(to, tag, nativeAddress(memory, offset, bytes), bytes);
    UcxHeader.write(data.header, address.id(), tag, to.sent++);
    data.moving(
        worker.send(
            to.endpoint,
            data.header,
            UcxHeader.BYTES,
            data.memory(),
            bytes,
            UcpWorker.ANY_PROTOCOL));
    hasSent = true;
    moved++;
    return number;
  }

  private static void checkLength(long tag, long bytes) {
    long most = tag >>> KIND_SHIFT < DATA ? SMALL_BYTES : Integer.MAX_VALUE;
    if (bytes < 0 || bytes > most) {
      throw new IllegalArgumentException(bytes + " bytes; a message of this kind has 0 to " + most);
    }
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
    if (tag >>> KIND_SHIFT < DATA) {
      throw new IllegalArgumentException("small messages are not received but landed");
    }
    checkLength(tag, bytes);
    UcxPeer from = peer(peer);
    if (from.error() != null) {
      return failedRequest();
    }
    UcxTransfer data = transfer();
    long number = data.begin(from, tag, nativeAddress(memory, offset, bytes), bytes);
    from.expect(data);
    return number;
  }

  @Override
  public void arrived(long header, long headerBytes, long data, long bytes) {
    if (headerBytes != UcxHeader.BYTES) {
      return;
    }
    UcxPeer from = sender(UcxHeader.sender(header));
    if (isClosed) {
      if (from != null && from.error() == null && UcxHeader.tag(header) == UcxHeader.FAREWELL) {
        end(from, "it has closed its port");
      }
    } else if (from == null) {
      keep(header, data, bytes);
    } else if (isNext(from, UcxHeader.number(header))) {
      take(from, UcxHeader.tag(header), everything, data, bytes);
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
    if (tag == UcxHeader.FAREWELL) {
      end(from, "it has closed its port");
    } else if (tag == UcxHeader.FRAME) {
      takeFrame(from, memory, at, at + bytes);
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
      if (tag < 0 || bytes < 0 || bytes > end - at) {
        failed(from, "it has sent a message of " + bytes + " bytes where " + (end - at) + " are");
        return;
      }
      moved++;
      landing.landed(from.number, tag, memory, at, bytes);
      at += UcxFrame.padded(bytes);
    }
  }

  private @Nullable UcxTransfer wanted(UcxPeer from, long tag, long bytes) {
    UcxTransfer data = from.expected(tag);
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

  /** Keeps a message until its sender has a number. */
  private void keep(long header, long data, long bytes) {
    long sender = UcxHeader.sender(header);
    if (earlyBytes + bytes > EARLY_BYTES) {
      // What follows it is out of order, which fails the sender as soon as it is known.
      return;
    }
    earlyBytes += bytes;
    byte[] content = new byte[(int) bytes];
    MemorySegment.copy(everything, ValueLayout.JAVA_BYTE, data, content, 0, content.length);
    early.add(new Early(sender, UcxHeader.number(header), UcxHeader.tag(header), content));
  }

  private void takeEarly(UcxPeer from) {
    for (Early one : List.copyOf(early)) {
      if (one.sender == from.address.id()) {
        early.remove(one);
        earlyBytes -= one.content.length;
        if (isNext(from, one.number)) {
          take(from, one.tag, MemorySegment.ofArray(one.content), 0, one.content.length);
        }
      }
    }
  }

  @Override
  public void failed(long of, byte status) {
    UcxPeer peer = peers.get((int) of);
    if (peer != null) {
      failed(
          peer,
          "its connection has ended: its process died, or its machine is out of reach ("
              + Ucp.text(status)
              + ")");
    }
  }

  // ---- requests

  private UcxTransfer transfer() {
    UcxTransfer again = freeTransfers.poll();
    if (again != null) {
      return again;
    }
    long header = arena.allocate(UcxHeader.BYTES, Long.BYTES).address();
    UcxTransfer another = new UcxTransfer(transfers.size(), header);
    transfers.add(another);
    return another;
  }

  private long failedRequest() {
    UcxTransfer never = transfer();
    long number = never.begin(null, 0, 0, 0);
    never.end(FAILED);
    return number;
  }

  @Override
  public int state(long request) {
    if (request == NONE) {
      return COMPLETE;
    }
    UcxTransfer transfer = transfers.get(UcxTransfer.indexOf(request));
    if (!transfer.is(request)) {
      throw new IllegalArgumentException("that request was given back");
    }
    int state = transfer.state();
    if (state != PENDING) {
      transfer.retire();
      freeTransfers.push(transfer);
    }
    return state;
  }

  // ---- progress

  @Override
  public int poll(Landing to) {
    own();
    moved = 0;
    landing = to;
    try {
      greet();
      flushAll();
      for (int round = 0; round < ROUNDS && worker.progress() != 0; round++) {
        moved++;
        startReceives();
      }
      startReceives();
      seeTo();
    } finally {
      landing = NOBODY;
    }
    return moved;
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

  /** What is rare. */
  private void seeTo() {
    if (!leaving.isEmpty()) {
      leaving.removeIf(this::hasLeft);
    }
    greet();
    if (!connecting.isEmpty()) {
      connecting.removeIf(this::isConnected);
    }
    if (!closing.isEmpty()) {
      closing.removeIf(this::hasClosed);
    }
  }

  /** Connects to those who were heard of, and takes what they have sent before they were known. */
  private void greet() {
    while (!heard.isEmpty()) {
      UcxPeer peer = heard.removeLast();
      connect(peer);
      takeEarly(peer);
    }
  }

  private boolean hasLeft(UcxFrame frame) {
    if (UcpWorker.status(frame.request) == UcpWorker.IN_PROGRESS) {
      return false;
    }
    UcpWorker.free(frame.request);
    frame.clear();
    freeFrames.push(frame);
    return true;
  }

  private boolean isConnected(UcxPeer peer) {
    byte status = UcpWorker.status(peer.connecting);
    if (status == UcpWorker.IN_PROGRESS && peer.error() == null) {
      if (peer.came == 0 && System.nanoTime() - peer.since > connectNanos) {
        failed(peer, "it did not answer within " + connectNanos / 1_000_000 + " ms");
      } else {
        return false;
      }
    }
    UcpWorker.free(peer.connecting);
    return true;
  }

  private boolean hasClosed(UcxPeer peer) {
    if (peer.closing == UcxPeer.NONE) {
      peer.closing = worker.close(peer.endpoint);
    }
    if (UcpWorker.status(peer.closing) == UcpWorker.IN_PROGRESS) {
      return false;
    }
    UcpWorker.free(peer.closing);
    peer.endpoint = UcxPeer.NONE;
    return true;
  }

  @Override
  public int failures() {
    return failures;
  }

  @Override
  public @Nullable String error(int peer) {
    return peer(peer).error();
  }

  @Override
  public boolean isFlushed() {
    own();
    flushAll();
    if (flushing == UcxPeer.NONE && hasSent) {
      hasSent = false;
      flushing = worker.flush();
    }
    if (UcpWorker.status(flushing) == UcpWorker.IN_PROGRESS) {
      return false;
    }
    UcpWorker.free(flushing);
    flushing = UcxPeer.NONE;
    return !hasSent;
  }

  // ---- the end

  @Override
  public void close() {
    end(true);
  }

  @Override
  public void abort() {
    end(false);
  }

  private void end(boolean farewell) {
    if (isClosed) {
      return;
    }
    isClosed = true;
    closedAt = System.nanoTime();
    quietSince = closedAt;
    if (farewell) {
      flushAll();
      bidFarewell();
      // What is under way may end before that is heard; the users' memory is theirs again then.
      progressUntil(() -> !isMoving() || isAlone(), FAREWELL_NANOS);
    }
    if (!farewell || isMoving()) {
      drop();
      progressUntil(this::areClosed, MOST_NANOS);
    }
    ClosedPorts.add(this);
  }

  private void bidFarewell() {
    for (UcxPeer peer : peers) {
      if (peer != null && peer.error() == null && peer.endpoint != UcxPeer.NONE) {
        UcxTransfer last = transfer();
        UcxHeader.write(last.header, address.id(), UcxHeader.FAREWELL, peer.sent++);
        UcpWorker.free(
            worker.send(peer.endpoint, last.header, UcxHeader.BYTES, 0, 0, UcpWorker.EAGER));
      }
    }
  }

  /** Whether UCX may touch the memory of users. */
  private boolean isMoving() {
    for (UcxTransfer transfer : transfers) {
      if (transfer.isMoving()) {
        return true;
      }
    }
    return false;
  }

  private void drop() {
    isDropped = true;
    for (UcxPeer peer : peers) {
      if (peer != null && peer.error() == null) {
        end(peer, "this port is closed");
      }
    }
  }

  /**
   * Goes on to close a port that is closed for its users, and says when it is done.
   *
   * <p>UCX connects two workers by messages of its own. A worker that is destroyed while such a
   * message waits for its connection ends the process by a failed assertion (1.13; newer ones do
   * not). How far they are, it does not say, so a worker gets a moment without events before.
   */
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
    boolean isOver = areClosed() && now - quietSince > QUIET_NANOS;
    if (!isOver && now - closedAt < MOST_NANOS) {
      return false;
    }
    UcpWorker.free(flushing);
    connecting.forEach(peer -> UcpWorker.free(peer.connecting));
    leaving.forEach(frame -> UcpWorker.free(frame.request));
    worker.close();
    context.close();
    arena.close();
    return true;
  }

  /** Whether all peers have heard the farewell, to which they close their endpoint, or failed. */
  private boolean isAlone() {
    closing.removeIf(this::hasClosed);
    for (UcxPeer peer : peers) {
      if (peer != null && peer.error() == null && peer.endpoint != UcxPeer.NONE) {
        return false;
      }
    }
    return true;
  }

  private boolean areClosed() {
    closing.removeIf(this::hasClosed);
    return closing.isEmpty();
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

package io.nccl4j.internal.net;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * A network in memory whose scheduler, {@link #step}, lets chance decide which messages move on and
 * how far: any order but the one that the contract promises, the same for the same seed. Data moves
 * in pieces, and is read from the sender's memory as late as possible.
 */
public final class FakeNetwork implements Network {
  private static final int MOST_PIECES = 4;

  private final Random random;
  private final List<FakePort> ports = new ArrayList<>();
  private final boolean movesAtPolls;

  FakeNetwork(long seed) {
    this(seed, false);
  }

  /**
   * A network without ports.
   *
   * @param movesAtPolls whether each poll of a port takes a step of the scheduler first
   */
  public FakeNetwork(long seed, boolean movesAtPolls) {
    this.movesAtPolls = movesAtPolls;
    random = new Random(seed);
  }

  @Override
  public String name() {
    return "memory";
  }

  @Override
  public InetAddress address() {
    return InetAddress.getLoopbackAddress();
  }

  @Override
  public synchronized Port newPort() {
    FakePort port = new FakePort(ports.size());
    ports.add(port);
    return port;
  }

  @Override
  public void close() {}

  /** Moves some of what is under way; half of the time nothing, as networks do. */
  synchronized void step() {
    for (FakePort port : ports) {
      for (Link link : port.links.values()) {
        if (random.nextBoolean()) {
          link.move(1 + random.nextInt(MOST_PIECES));
        }
      }
    }
  }

  /** A message under way; its bytes, or for data where they are read. */
  private static final class Message {
    private final long tag;
    private final MemorySegment memory;
    private final long offset;
    private final long bytes;
    private final @Nullable Request sent;

    private Message(
        long tag, MemorySegment memory, long offset, long bytes, @Nullable Request sent) {
      this.tag = tag;
      this.memory = memory;
      this.offset = offset;
      this.bytes = bytes;
      this.sent = sent;
    }
  }

  private static final class Request {
    private int state = Port.PENDING;
    private long tag;
    private MemorySegment memory = MemorySegment.NULL;
    private long offset;
    private long bytes;
    private long moved;
  }

  /** The way from one port to another. */
  private final class Link {
    private final FakePort from;
    private final FakePort to;

    private final Deque<Message> underWay = new ArrayDeque<>();
    private @Nullable Request receiving;

    /** Whether anything was sent: before that the ends are not connected. */
    private boolean isUsed;

    private Link(FakePort from, FakePort to) {
      this.from = from;
      this.to = to;
    }

    private void move(int pieces) {
      Integer number = to.numbers.get(from);
      if (number == null || to.isClosed || to.errors.get(number) != null) {
        return;
      }
      for (int piece = 0; piece < pieces && !underWay.isEmpty(); piece++) {
        Message message = underWay.peek();
        if (!MessageCheck.isData(message.tag)) {
          to.arrived.add(new Arrived(number, message));
          done(message);
        } else if (!moveData(message, number)) {
          return;
        }
      }
    }

    private boolean moveData(Message message, int number) {
      if (receiving == null) {
        Request wanted = to.expected(number, message.tag);
        if (wanted == null || wanted.bytes != message.bytes) {
          to.fail(
              number,
              "it sent "
                  + message.bytes
                  + " bytes"
                  + (wanted == null ? ", which nothing waits for" : ", not " + wanted.bytes));
          if (wanted != null) {
            wanted.state = Port.FAILED;
          }
          return false;
        }
        receiving = wanted;
      }
      Request target = Objects.requireNonNull(receiving);
      long part = Math.min(target.bytes - target.moved, 1 + random.nextInt(1 << 20));
      MemorySegment.copy(
          message.memory,
          message.offset + target.moved,
          target.memory,
          target.offset + target.moved,
          part);
      target.moved += part;
      if (target.moved == target.bytes) {
        target.state = Port.COMPLETE;
        receiving = null;
        done(message);
      }
      return true;
    }

    private void done(Message message) {
      underWay.remove(message);
      if (message.sent != null) {
        message.sent.state = Port.COMPLETE;
      }
    }

    /** Nothing more goes this way. */
    private void cut() {
      for (Message message : underWay) {
        if (message.sent != null) {
          message.sent.state = Port.FAILED;
        }
      }
      underWay.clear();
      if (receiving != null) {
        receiving.state = Port.FAILED;
        receiving = null;
      }
    }
  }

  private record Arrived(int peer, Message message) {}

  private final class FakePort implements Port {
    private final int id;
    private final Map<Integer, FakePort> peers = new HashMap<>();
    private final Map<FakePort, Integer> numbers = new HashMap<>();
    private final Map<Integer, Link> links = new HashMap<>();
    private final Map<Integer, String> errors = new HashMap<>();
    private final Map<Integer, List<Request>> receives = new HashMap<>();
    private final Map<Long, Request> requests = new HashMap<>();
    private final Deque<Arrived> arrived = new ArrayDeque<>();
    private long lastRequest;
    private int failures;
    private boolean isClosed;

    private FakePort(int id) {
      this.id = id;
    }

    @Override
    public byte[] address() {
      return ByteBuffer.allocate(Integer.BYTES).putInt(id).array();
    }

    @Override
    public void addPeer(int peer, byte[] address) {
      synchronized (FakeNetwork.this) {
        if (address.length != Integer.BYTES) {
          throw new InvalidArgumentException("no address of this network", "take that of a port");
        }
        if (peers.containsKey(peer)) {
          throw new IllegalArgumentException("peer " + peer + " has an address already");
        }
        FakePort other = ports.get(ByteBuffer.wrap(address).getInt());
        peers.put(peer, other);
        numbers.put(other, peer);
        links.put(peer, new Link(this, other));
      }
    }

    private void check(int peer) {
      if (isClosed) {
        throw new InvalidUsageException("the port is closed", "use it before it is closed");
      }
      if (!peers.containsKey(peer)) {
        throw new InvalidArgumentException("there is no peer " + peer, "add it first");
      }
    }

    @Override
    public void watch(int peer) {
      // Nothing is out of reach here.
    }

    @Override
    public long send(int peer, long tag, MemorySegment memory, long offset, long bytes) {
      synchronized (FakeNetwork.this) {
        check(peer);
        MessageCheck.sent(tag, bytes);
        Request request = new Request();
        if (errors.get(peer) != null) {
          request.state = FAILED;
        } else {
          used(peer).add(new Message(tag, memory, offset, bytes, request));
          dropIfFailed(peer);
        }
        return number(request);
      }
    }

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
      synchronized (FakeNetwork.this) {
        check(peer);
        MessageCheck.posted(tag, headBytes + bodyBytes);
        if (errors.get(peer) == null) {
          byte[] copy = new byte[(int) (headBytes + bodyBytes)];
          MemorySegment all = MemorySegment.ofArray(copy);
          MemorySegment.copy(head, headOffset, all, 0, headBytes);
          MemorySegment.copy(body, bodyOffset, all, headBytes, bodyBytes);
          used(peer).add(new Message(tag, all, 0, copy.length, null));
          dropIfFailed(peer);
        }
      }
    }

    @Override
    public void flush() {
      // Messages are under way at once.
    }

    private void dropIfFailed(int peer) {
      if (errors.get(peer) != null) {
        links.get(peer).cut();
      }
    }

    private Deque<Message> used(int peer) {
      Link link = links.get(peer);
      link.isUsed = true;
      if (link.to.isClosed) {
        fail(peer, "it can't be connected to: nobody listens");
      }
      return link.underWay;
    }

    @Override
    public long receive(int peer, long tag, MemorySegment memory, long offset, long bytes) {
      synchronized (FakeNetwork.this) {
        check(peer);
        MessageCheck.received(tag, bytes);
        Request request = new Request();
        request.tag = tag;
        request.memory = memory;
        request.offset = offset;
        request.bytes = bytes;
        if (errors.get(peer) != null) {
          request.state = FAILED;
        } else {
          receives.computeIfAbsent(peer, p -> new ArrayList<>()).add(request);
        }
        return number(request);
      }
    }

    private long number(Request request) {
      requests.put(++lastRequest, request);
      return lastRequest;
    }

    private @Nullable Request expected(int peer, long tag) {
      List<Request> waiting = receives.getOrDefault(peer, List.of());
      for (Request request : waiting) {
        if (request.tag == tag) {
          waiting.remove(request);
          return request;
        }
      }
      return null;
    }

    @Override
    public int state(long request) {
      synchronized (FakeNetwork.this) {
        if (request == NONE) {
          return COMPLETE;
        }
        Request found = requests.get(request);
        if (found == null) {
          throw new IllegalArgumentException("that request was given back");
        }
        if (found.state != PENDING) {
          requests.remove(request);
        }
        return found.state;
      }
    }

    @Override
    public int poll(Landing landing, int awaited) {
      int moved = 0;
      if (movesAtPolls) {
        step();
      }
      while (true) {
        Arrived next;
        synchronized (FakeNetwork.this) {
          if (isClosed) {
            throw new InvalidUsageException("the port is closed", "use it before it is closed");
          }
          next = arrived.poll();
        }
        if (next == null) {
          return moved;
        }
        Message message = next.message;
        landing.landed(next.peer, message.tag, message.memory, message.offset, message.bytes);
        moved++;
      }
    }

    private void fail(int peer, String why) {
      if (errors.get(peer) == null) {
        failures++;
        end(peer, why);
      }
    }

    private void end(int peer, String why) {
      if (errors.putIfAbsent(peer, why) == null) {
        receives.getOrDefault(peer, new ArrayList<>()).forEach(r -> r.state = FAILED);
        receives.remove(peer);
        links.get(peer).cut();
      }
    }

    @Override
    public boolean isConnected(int peer) {
      synchronized (FakeNetwork.this) {
        check(peer);
        return errors.get(peer) == null && isConnected(links.get(peer));
      }
    }

    private boolean isConnected(Link link) {
      Integer me = link.to.numbers.get(this);
      return link.isUsed || me != null && link.to.links.get(me).isUsed;
    }

    @Override
    public int failures() {
      synchronized (FakeNetwork.this) {
        return failures;
      }
    }

    @Override
    public @Nullable String error(int peer) {
      synchronized (FakeNetwork.this) {
        check(peer);
        return errors.get(peer);
      }
    }

    @Override
    public boolean isFlushed() {
      synchronized (FakeNetwork.this) {
        return links.values().stream().allMatch(link -> link.underWay.isEmpty());
      }
    }

    @Override
    public void close() {
      end(true);
    }

    @Override
    public void abort() {
      end(false);
    }

    private void end(boolean farewell) {
      synchronized (FakeNetwork.this) {
        if (isClosed) {
          return;
        }
        isClosed = true;
        for (Link link : links.values()) {
          link.cut();
          Integer me = link.to.numbers.get(this);
          if (me != null && !link.to.isClosed && isConnected(link)) {
            if (farewell) {
              link.to.end(me, "it has closed its port");
            } else {
              link.to.fail(me, "its connection has ended");
            }
          }
        }
      }
    }

    @Override
    public String toString() {
      return "port " + id;
    }
  }
}

package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.net.Port;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.function.LongFunction;
import org.jspecify.annotations.Nullable;

/**
 * Transfers between one rank and ranks of other hosts. What a rank begins to send to another one as
 * the <i>n</i>-th of a lane goes where that one's <i>n</i>-th receive of it says; both say which
 * operation they belong to, and whoever finds another one there reports it.
 *
 * <p><b>Small</b> ones go at once, and are kept by the receiver where its receive has not begun. A
 * sender is at most {@link #SLOTS} transfers and {@link Link#EARLY_BYTES} ahead of the receives
 * that it knows to have begun there, so that there is room for them. <b>Large</b> ones go straight
 * to their place, part by part, when the receiver asks for them, which it does when its receive
 * begins; unless it has asked already, the sender announces them, so that it can compare.
 *
 * <p>All of it belongs to the owner of the port. Nothing waits, and nothing is allocated once two
 * ranks have talked.
 */
final class Wire implements Port.Landing {
  /** Lane of collectives. */
  static final int COLLECTIVES = 0;

  /** Lane of sends and receives. */
  static final int MESSAGES = 1;

  /** Lane of results that are sent by whoever has them first. */
  static final int RESULTS = 2;

  private static final int LANES = 3;

  /** Most bytes that are sent without having been asked for. */
  static final int EAGER_BYTES = 64 << 10;

  /** Most bytes of a large one that are asked for, and sent, at once: ports have a limit. */
  private static final long PART_BYTES = 1 << 30;

  /** Most transfers under way between two ranks, in a lane and direction; a power of two. */
  static final int SLOTS = 16;

  static final int HEADER_BYTES = 56;
  static final int FRAME_BYTES = HEADER_BYTES + EAGER_BYTES;

  static final int ANNOUNCEMENT = 1;
  static final int REQUEST = 2;
  private static final int NOTE = 3;
  static final int NEWS = 4;
  private static final int QUESTION = 5;
  private static final int WORDS = 6;
  private static final int DIFFERENCE = 7;
  private static final int LANE_SHIFT = 56;
  private static final int LANE_MASK = 15;

  private static final ValueLayout.OfInt INT = ValueLayout.JAVA_INT_UNALIGNED;
  private static final ValueLayout.OfLong LONG = ValueLayout.JAVA_LONG_UNALIGNED;
  private static final int WORD = 0;
  private static final int EXPECTS = 4;
  private static final int BYTES = 8;
  private static final int CODE = 16;
  private static final int COUNT = 24;
  private static final int CALL = 32;
  private static final int EARLIER_CODE = 40;
  private static final int EARLIER_COUNT = 48;

  // Of what a rank says of the first collective that it called differently, before its counts.
  private static final int SINCE = 8;
  private static final int FIRST_CODE = 16;
  private static final int FIRST_COUNT = 24;
  private static final int DIFFERENCE_BYTES = 32;

  /** Hears of what is not as it must be. */
  interface Listener {
    /** A peer's transfer belongs to another operation, or has another size. */
    void contradiction(Transfer own, Header theirs);

    /** A peer has called another collective under a number than this rank. */
    void contradiction(long call, int peer, Header theirs);

    /** The counts of all ranks that this one has called a collective with; empty if not known. */
    long[] counts(long call);

    /** A peer says where its calls differ first from those it was told of. */
    void difference(int peer, Difference theirs);

    /** A peer has sent what no rank of this library sends. */
    void nonsense(int peer, String what);
  }

  /** Hears, on the thread that polls, what peers say of their hosts' ranks. */
  interface NewsListener {
    /** A peer has something to say of a rank of its host. */
    void news(int peer, int of, MemorySegment news, long offset);

    /** A peer wants to hear of all ranks of this host. */
    void question(int peer);
  }

  /**
   * What a peer says of a transfer.
   *
   * @param earlierCode of the collective before, 0 if it does not say
   */
  record Header(
      int word,
      long bytes,
      long code,
      long count,
      long call,
      long earlierCode,
      long earlierCount) {}

  /**
   * The first collective that a peer called differently, as it says.
   *
   * @param call its number; 0 if it knows of none
   * @param since the first one that both remember
   * @param counts of all ranks, where all ranks pass them; empty if the peer does not say
   */
  record Difference(long call, long since, long code, long count, long... counts) {}

  /** Memory outside the Java heap. */
  record Frames(MemorySegment segment, long offset) {}

  private final Port port;
  private final LongFunction<Frames> memory;
  private final Listener listener;
  private final NewsListener newsListener;
  private final @Nullable Link[] links;

  /** Calls of this rank, of which the last ones may have been sent before their turn. */
  private final CallHistory history = new CallHistory();

  /** The last collective whose turn it was. */
  private long turn;

  /** Whether a link has heard of a collective that this rank has not called. */
  private boolean isAhead;

  /**
   * A wire on which nothing was sent.
   *
   * @param port has all peers, numbered by their ranks
   * @param memory takes memory outside the Java heap
   */
  Wire(
      Port port,
      int nranks,
      LongFunction<Frames> memory,
      Listener listener,
      NewsListener newsListener) {
    this.port = port;
    this.memory = memory;
    this.listener = listener;
    this.newsListener = newsListener;
    links = new Link[nranks * LANES];
  }

  // ---- what is called

  /** This rank is at a collective; what peers have said of it is compared. */
  void call(EngineWork w) {
    if (turn == w.seq) {
      return;
    }
    turn = w.seq;
    if (history.latest() < turn) {
      history.add(w);
    }
    if (isAhead) {
      isAhead = false;
      for (Link link : links) {
        Header heard = link == null ? null : link.ahead;
        if (link != null && heard != null) {
          link.ahead = null;
          compare(link, heard);
        }
      }
    }
  }

  /** This rank is going to be at a collective, whose data is sent now. */
  void callEarly(EngineWork w) {
    history.add(w);
  }

  /** Tells a peer what this rank calls, where nothing else does. */
  void mention(int peer, EngineWork w) {
    Link link = link(peer, COLLECTIVES);
    long at = link.head;
    link.memory.set(INT, at + WORD, w.signature);
    link.memory.set(LONG, at + BYTES, 0);
    link.memory.set(LONG, at + CODE, w.code());
    link.memory.set(LONG, at + COUNT, w.count);
    writeCall(link.memory, at, w.seq);
    post(link, NOTE, 0);
  }

  /** The last collectives of this rank. */
  CallHistory history() {
    return history;
  }

  private void compare(Link link, Header heard) {
    if (heard.call() > turn) {
      link.ahead = heard;
      isAhead = true;
      return;
    }
    if (history.has(heard.call()) && !history.hasWord(heard.call(), heard.word())) {
      listener.contradiction(heard.call(), link.peer, heard);
    }
  }

  // ---- transfers

  /** Whether a send can begin; at most {@link #SLOTS} are unfinished. */
  boolean canSend(int peer, int lane) {
    Link link = link(peer, lane);
    return link.send(link.sent + 1).state == Transfer.IDLE;
  }

  /** Whether this number of small sends, of this many bytes each, would leave at once. */
  boolean canSendAtOnce(int peer, int lane, int number, long bytes) {
    return link(peer, lane).canSendAtOnce(number, bytes);
  }

  /** How many sends have begun whose receives are not known to have. */
  int ahead(int peer, int lane) {
    return link(peer, lane).ahead();
  }

  /** The same as {@link #canSend} for receives. */
  boolean canReceive(int peer, int lane) {
    Link link = link(peer, lane);
    return link.receive(link.expected + 1).state == Transfer.IDLE;
  }

  /** The next send, when {@link #canSend}; fill it in, and begin it. */
  Transfer nextSend(int peer, int lane) {
    Link link = link(peer, lane);
    return link.send(link.sent + 1);
  }

  /** The next receive, when {@link #canReceive}; fill it in, and begin it. */
  Transfer nextReceive(int peer, int lane) {
    Link link = link(peer, lane);
    return link.receive(link.expected + 1);
  }

  /**
   * Begins a transfer. Its memory belongs to the wire until {@link #isDone} returns true. A large
   * send that has already been asked for leaves with the next call of {@link #isDone}: it may take
   * long, and receives that begin before that call can ask first.
   */
  void begin(Transfer t) {
    Link link = t.link;
    t.asked = false;
    t.moved = 0;
    t.request = Port.NONE;
    if (t.sends) {
      t.seq = ++link.sent;
      t.state = Transfer.WAITING;
      if (link.isAsked(t.seq)) {
        link.setAsked(t.seq, false);
        request(t, link.memory, link.askFrame(t.seq));
        if (!t.isSmall()) {
          return;
        }
      }
    } else {
      t.seq = ++link.expected;
      t.state = Transfer.EXPECTED;
      link.untoldBytes += Link.keptBytes(t);
      if (link.isKept(t.seq)) {
        announcement(t, link.memory, link.kept(t.seq));
        link.release(t.seq);
      }
    }
    advance(t);
  }

  /** Whether a transfer is over; it is given back by that. */
  boolean isDone(Transfer t) {
    if (t.state != Transfer.DONE) {
      advance(t);
      if (t.state != Transfer.DONE) {
        return false;
      }
    }
    t.state = Transfer.IDLE;
    return true;
  }

  /** How many sends or receives have begun; the low bits. */
  int begun(int peer, int lane, boolean sends) {
    Link link = link(peer, lane);
    return sends ? link.sent : link.expected;
  }

  /** Where a transfer is found again. */
  int number(Transfer t) {
    int link = t.link.peer * LANES + t.link.lane;
    return (2 * link + (t.sends ? 1 : 0)) * SLOTS + (t.seq & SLOTS - 1);
  }

  /** The transfer with that number. */
  Transfer at(int number) {
    int place = number / SLOTS;
    Link link = link(place / 2 / LANES, place / 2 % LANES);
    return (place & 1) != 0 ? link.send(number % SLOTS) : link.receive(number % SLOTS);
  }

  private void advance(Transfer t) {
    switch (t.state) {
      case Transfer.WAITING -> announce(t);
      case Transfer.ANNOUNCED -> sendData(t);
      case Transfer.SENDING -> {
        if (isOver(t)) {
          t.state = t.moved == t.bytes ? Transfer.DONE : Transfer.ANNOUNCED;
          sendData(t);
        }
      }
      case Transfer.EXPECTED -> receive(t);
      default -> {}
    }
    tell(t.link);
  }

  private boolean isOver(Transfer t) {
    if (t.request != Port.NONE) {
      int state = port.state(t.request);
      if (state == Port.PENDING) {
        return false;
      }
      t.request = Port.NONE;
      if (state == Port.FAILED) {
        t.state = Transfer.LOST;
        return false;
      }
    }
    return true;
  }

  private void announce(Transfer t) {
    if (t.isSmall() || !t.asked) {
      Link link = t.link;
      if (!link.canKeep(t)) {
        return;
      }
      write(t);
      port.post(
          link.peer,
          tag(ANNOUNCEMENT, link, t.seq),
          link.memory,
          link.head,
          HEADER_BYTES,
          t.memory,
          t.offset,
          t.isSmall() ? t.bytes : 0);
      link.announced(t);
    }
    t.state = t.isSmall() ? Transfer.DONE : Transfer.ANNOUNCED;
    sendData(t);
  }

  private void sendData(Transfer t) {
    if (t.state == Transfer.ANNOUNCED && t.asked) {
      t.asked = false;
      long part = Math.min(PART_BYTES, t.bytes - t.moved);
      t.request =
          port.send(t.link.peer, tag(Port.DATA, t.link, t.seq), t.memory, t.offset + t.moved, part);
      t.moved += part;
      t.state = Transfer.SENDING;
    }
  }

  private void receive(Transfer t) {
    if (t.isSmall()) {
      return;
    }
    if (t.moved == 0) {
      ask(t);
    }
    while (isOver(t)) {
      if (t.moved == t.bytes) {
        t.state = Transfer.DONE;
        return;
      }
      ask(t);
    }
  }

  /** Asks for the next part of a large one. */
  private void ask(Transfer t) {
    Link link = t.link;
    long part = Math.min(PART_BYTES, t.bytes - t.moved);
    t.request =
        port.receive(link.peer, tag(Port.DATA, link, t.seq), t.memory, t.offset + t.moved, part);
    t.moved += part;
    write(t);
    post(link, REQUEST, t.seq);
  }

  /** Tells the peer how many receives have begun, where nothing else does. */
  private void tell(Link link) {
    if (link.expected - link.told >= SLOTS / 2 || link.untoldBytes >= Link.EARLY_BYTES / 2) {
      writeCall(link.memory, link.head, 0);
      post(link, NOTE, 0);
    }
  }

  private void write(Transfer t) {
    Link link = t.link;
    long at = link.head;
    link.memory.set(INT, at + WORD, t.word);
    link.memory.set(LONG, at + BYTES, t.bytes);
    link.memory.set(LONG, at + CODE, t.code);
    link.memory.set(LONG, at + COUNT, t.count);
    writeCall(link.memory, at, link.lane == MESSAGES ? 0 : t.call);
    writeExpects(link);
  }

  private void writeCall(MemorySegment memory, long at, long call) {
    memory.set(LONG, at + CALL, call);
    memory.set(LONG, at + EARLIER_CODE, call == 0 ? 0 : history.code(call - 1));
    memory.set(LONG, at + EARLIER_COUNT, history.count(call - 1));
  }

  private static void writeExpects(Link link) {
    link.memory.set(INT, link.head + EXPECTS, link.expected);
    link.told = link.expected;
    link.untoldBytes = 0;
  }

  /** Sends the header that was written. */
  private void post(Link link, int kind, int seq) {
    writeExpects(link);
    port.post(link.peer, tag(kind, link, seq), link.memory, link.head, HEADER_BYTES);
  }

  private static long tag(int kind, Link link, int seq) {
    return (long) kind << Port.KIND_SHIFT | (long) link.lane << LANE_SHIFT | seq & 0xffffffffL;
  }

  // ---- what comes

  @Override
  public void landed(int peer, long tag, MemorySegment from, long offset, long bytes) {
    int kind = (int) (tag >>> Port.KIND_SHIFT);
    if (kind == NEWS && bytes == Outside.NEWS_BYTES) {
      newsListener.news(peer, (int) tag, from, offset);
      return;
    }
    if (kind == QUESTION) {
      newsListener.question(peer);
      return;
    }
    if (kind == WORDS && bytes > Long.BYTES && bytes <= CallHistory.WORDS_BYTES) {
      answerWhere(peer, from, offset, bytes);
      return;
    }
    if (kind == DIFFERENCE && bytes >= DIFFERENCE_BYTES && bytes <= FRAME_BYTES) {
      listener.difference(peer, difference(from, offset, bytes));
      return;
    }
    int lane = (int) (tag >>> LANE_SHIFT) & LANE_MASK;
    if (lane >= LANES || bytes < HEADER_BYTES || bytes > FRAME_BYTES) {
      listener.nonsense(peer, "a message of kind " + kind + ", lane " + lane + ", " + bytes + " B");
      return;
    }
    Link link = link(peer, lane);
    link.peerExpects(from.get(INT, offset + EXPECTS));
    int seq = (int) tag;
    long call = from.get(LONG, offset + CALL);
    if (lane != MESSAGES && call > 0 && !history.hasWord(call, from.get(INT, offset + WORD))) {
      compare(link, header(from, offset));
    }
    switch (kind) {
      case ANNOUNCEMENT -> {
        Transfer t = link.receive(seq);
        if (t.state == Transfer.EXPECTED && t.seq == seq) {
          announcement(t, from, offset);
        } else if (isAhead(seq, link.expected) && !link.isKept(seq)) {
          if (!link.keep(seq, from, offset, bytes)) {
            listener.nonsense(peer, "more than it was told that there is room for");
          }
        } else if (bytes > HEADER_BYTES || !isPast(seq, link.expected)) {
          // A large one's data may come before its announcement.
          listener.nonsense(peer, "transfer " + seq + " of lane " + lane);
        }
      }
      case REQUEST -> {
        Transfer t = link.send(seq);
        if (t.state != Transfer.IDLE && t.seq == seq) {
          request(t, from, offset);
        } else if (isAhead(seq, link.sent) && !link.isAsked(seq)) {
          MemorySegment.copy(from, offset, link.memory, link.askFrame(seq), HEADER_BYTES);
          link.setAsked(seq, true);
        } else if (!isPast(seq, link.sent)) {
          listener.nonsense(peer, "a request for transfer " + seq + " of lane " + lane);
        }
      }
      case NOTE -> {}
      default -> listener.nonsense(peer, "a message of kind " + kind);
    }
  }

  private static Header header(MemorySegment from, long offset) {
    return new Header(
        from.get(INT, offset + WORD),
        from.get(LONG, offset + BYTES),
        from.get(LONG, offset + CODE),
        from.get(LONG, offset + COUNT),
        from.get(LONG, offset + CALL),
        from.get(LONG, offset + EARLIER_CODE),
        from.get(LONG, offset + EARLIER_COUNT));
  }

  private static boolean isAhead(int seq, int last) {
    return seq - last > 0 && seq - last <= SLOTS;
  }

  /**
   * Of a request: for what was sent as a small transfer; the receiver finds the contradiction, too.
   */
  private static boolean isPast(int seq, int last) {
    return seq - last <= 0;
  }

  private void announcement(Transfer t, MemorySegment from, long offset) {
    if (fits(t, from, offset) && t.isSmall()) {
      if (t.bytes > 0) {
        Copies.copy(from, offset + HEADER_BYTES, t.memory, t.offset, t.bytes);
      }
      t.state = Transfer.DONE;
    }
  }

  private void request(Transfer t, MemorySegment from, long offset) {
    if (fits(t, from, offset)) {
      t.asked = true;
    }
  }

  private boolean fits(Transfer t, MemorySegment from, long offset) {
    int word = from.get(INT, offset + WORD);
    long bytes = from.get(LONG, offset + BYTES);
    if (word == t.word && bytes == t.bytes) {
      return true;
    }
    listener.contradiction(t, header(from, offset));
    return false;
  }

  /** Tells a peer something of a rank of this host. */
  void tell(int peer, int of, MemorySegment news) {
    port.post(peer, (long) NEWS << Port.KIND_SHIFT | of, news, 0, news.byteSize());
  }

  /** Whether a transfer to or from a peer has begun, at either end. */
  boolean hasTalkedTo(int peer) {
    for (int lane = 0; lane < LANES; lane++) {
      if (links[peer * LANES + lane] != null) {
        return true;
      }
    }
    return false;
  }

  /** Asks a peer for news of its host. */
  void ask(int peer) {
    port.post(peer, (long) QUESTION << Port.KIND_SHIFT, MemorySegment.NULL, 0, 0);
  }

  /** Asks a peer, which contradicts this rank, where its calls differ first from this rank's. */
  void askWhere(int peer) {
    MemorySegment words = history.words();
    port.post(peer, (long) WORDS << Port.KIND_SHIFT, words, 0, words.byteSize());
  }

  private void answerWhere(int peer, MemorySegment words, long offset, long bytes) {
    long call = history.firstDifference(words, offset, bytes);
    long[] counts = listener.counts(call);
    MemorySegment answer =
        Arena.ofAuto().allocate(DIFFERENCE_BYTES + (long) counts.length * Long.BYTES);
    answer.set(LONG, 0, call);
    answer.set(LONG, SINCE, history.firstInBoth(words, offset));
    answer.set(LONG, FIRST_CODE, history.code(call));
    answer.set(LONG, FIRST_COUNT, history.count(call));
    MemorySegment.copy(counts, 0, answer, LONG, DIFFERENCE_BYTES, counts.length);
    port.post(peer, (long) DIFFERENCE << Port.KIND_SHIFT, answer, 0, answer.byteSize());
  }

  private static Difference difference(MemorySegment from, long offset, long bytes) {
    long[] counts = new long[(int) (bytes - DIFFERENCE_BYTES) / Long.BYTES];
    MemorySegment.copy(from, LONG, offset + DIFFERENCE_BYTES, counts, 0, counts.length);
    return new Difference(
        from.get(LONG, offset),
        from.get(LONG, offset + SINCE),
        from.get(LONG, offset + FIRST_CODE),
        from.get(LONG, offset + FIRST_COUNT),
        counts);
  }

  /** Lets leave what was sent, before what takes longer. */
  void flush() {
    port.flush();
  }

  private Link link(int peer, int lane) {
    Link link = links[peer * LANES + lane];
    return link != null ? link : open(peer, lane);
  }

  private Link open(int peer, int lane) {
    Frames frames = memory.apply(Link.BYTES);
    Link link = new Link(peer, lane, frames.segment(), frames.offset());
    links[peer * LANES + lane] = link;
    return link;
  }
}

package io.nccl4j.internal.host.join;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.layout.ControlBlock;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.RankState;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.life.LocalRank;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.BitSet;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * Makes a communicator of those ranks of a failed one that go on. They find each other in its
 * control block, which is there as long as one of them has not closed it, whoever has died.
 *
 * <p>Each rank says there that it goes on. When all have that can, or the time of one has passed,
 * it proposes who they are and makes the new control block. The first proposal decides, by one
 * compare-and-set; there is no second decision. Who is in it has to come to the new communicator or
 * to say there that it does not; one that dies on the way makes the new communicator fail, for all,
 * and they may go on from that one in the same way.
 *
 * @param <W> the works
 */
public final class Survivors<W extends Work> {
  private static final long GOES_ON = 1;
  private static final long GIVES_UP = 2;

  private static final long SLEEP_NANOS = 50_000;

  /** How long the lowest rank may take to decide before others do: each proposal takes memory. */
  private static final long PRECEDENCE_NANOS = TimeUnit.MILLISECONDS.toNanos(100);

  private final Communicator parent;
  private final Health health;
  private final LocalPart part;
  private final ControlBlock control;
  private final MemoryBook.Account account;
  private final Supplier<W> works;
  private final int rank;

  /**
   * One rank's search for the others.
   *
   * @param parent has failed
   * @param health of the parent's rank
   * @param account has a control block until there is a communicator
   * @param works makes one
   */
  public Survivors(
      Communicator parent, Health health, MemoryBook.Account account, Supplier<W> works) {
    this.parent = parent;
    this.health = health;
    this.part = health.part();
    this.control = part.control();
    this.account = account;
    this.works = works;
    this.rank = parent.rank();
  }

  /**
   * As {@link Communicator#survivors}.
   *
   * @param attach makes the new communicator's rank
   */
  public <C> C run(Duration timeout, Function<Place<W>, C> attach) {
    announce();
    try {
      awaitDecision(timeout);
    } catch (RuntimeException | Error e) {
      giveUp();
      throw e;
    }
    return attach.apply(place(decision()));
  }

  private long word(int k) {
    return control.survivor(k) + Layout.GOES_ON;
  }

  private void announce() {
    if (!control.compareAndSet(word(rank), 0, GOES_ON)) {
      throw new InvalidUsageException(
          "survivors: it was called before on communicator " + parent.name(),
          "call it once; if the new communicator fails as well, call it on that one");
    }
  }

  // ---- who goes on

  private void awaitDecision(Duration timeout) {
    long start = System.nanoTime();
    long patience = saturated(timeout);
    long complete = -1;
    while (control.getAcquire(control.decided()) == 0) {
      long waited = System.nanoTime() - start;
      if (waited >= patience || isComplete()) {
        complete = complete < 0 ? waited : complete;
        if (isFirst() || waited - complete >= PRECEDENCE_NANOS) {
          propose();
        }
      } else {
        complete = -1;
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new InterruptedWaitException(
            "survivors: rank "
                + rank
                + " was interrupted while it waited for the other ranks of communicator "
                + parent.name(),
            "the others go on without it");
      }
      LockSupport.parkNanos(SLEEP_NANOS);
    }
  }

  private static long saturated(Duration timeout) {
    return timeout.compareTo(Duration.ofNanos(Long.MAX_VALUE)) < 0
        ? timeout.toNanos()
        : Long.MAX_VALUE;
  }

  /** Whether nobody else can come. */
  private boolean isComplete() {
    return IntStream.range(0, part.nranks())
        .allMatch(k -> control.getAcquire(word(k)) != 0 || cannotCome(k));
  }

  private boolean cannotCome(int k) {
    LocalRank local = part.rank(k);
    return isDead(k)
        || RankState.hasLeft(control.getAcquire(control.state(k)))
        || local != null && local.hasTaskEnded();
  }

  private boolean isDead(int k) {
    return part.group().isDead(part.processOf(k));
  }

  private boolean isComing(int k) {
    return control.getAcquire(word(k)) == GOES_ON && !isDead(k);
  }

  private boolean isFirst() {
    return IntStream.range(0, rank).noneMatch(this::isComing);
  }

  /** Makes a control block for those who are there now, and decides unless somebody has. */
  private void propose() {
    BitSet members = new BitSet();
    IntStream.range(0, part.nranks()).filter(this::isComing).forEach(members::set);
    long handle = ProcessMemory.self().controlBlocks().create(account, members.cardinality());
    long own = control.survivor(rank);
    control.setPlain(own + Layout.NEW_CONTROL, handle);
    for (int i = 0; i < Layout.MEMBERS_LONGS; i++) {
      long[] bits = members.toLongArray();
      control.setPlain(own + Layout.MEMBERS + (long) i * Long.BYTES, i < bits.length ? bits[i] : 0);
    }
    if (!control.compareAndSet(control.decided(), 0, rank + 1L)) {
      ProcessMemory.self().controlBlocks().discard(handle);
    }
  }

  /** What was decided. */
  private record Decision(int maker, long handle, int[] members) {
    int indexOf(int rank) {
      return IntStream.range(0, members.length)
          .filter(i -> members[i] == rank)
          .findFirst()
          .orElse(-1);
    }
  }

  private Decision decision() {
    int maker = (int) control.getAcquire(control.decided()) - 1;
    if (maker < 0 || maker >= part.nranks()) {
      throw ControlBlock.impossible(rank, "finds that rank " + maker + " has decided who goes on");
    }
    long[] bits = new long[Layout.MEMBERS_LONGS];
    for (int i = 0; i < bits.length; i++) {
      bits[i] = control.getPlain(control.survivor(maker) + Layout.MEMBERS + (long) i * Long.BYTES);
    }
    BitSet members = BitSet.valueOf(bits);
    if (!members.get(maker) || members.length() > part.nranks()) {
      throw ControlBlock.impossible(maker, "says that ranks " + members + " go on");
    }
    long handle = control.getPlain(control.survivor(maker) + Layout.NEW_CONTROL);
    return new Decision(maker, handle, members.stream().toArray());
  }

  // ---- the new communicator

  private Place<W> place(Decision decision) {
    int[] members = decision.members;
    int own = decision.indexOf(rank);
    if (own < 0) {
      throw new PeerFailedException(
          rank,
          "survivors: the other ranks of communicator "
              + parent.name()
              + " have gone on without rank "
              + rank
              + ", which came too late",
          "end this rank; a longer timeout waits for slow ones");
    }
    long start = System.nanoTime();
    CommunicatorConfig config = parent.config();
    String name = config.name() == null ? parent.name() + "/survivors" : config.name();
    int[] processOf = IntStream.of(members).map(part::processOf).toArray();
    boolean spans = IntStream.of(processOf).distinct().count() > 1;
    Provisions<W> provisions = null;
    LocalPart child;
    try {
      provisions = Provisions.take(own, parent.device(), config, name, spans, works);
      excuse(decision);
      child = Child.part(part, decision.handle, decision.maker, processOf, own);
    } catch (RuntimeException | Error e) {
      if (provisions == null) {
        lost(decision, own);
      } else {
        provisions.giveBack();
      }
      throw e;
    }
    if (child == null) {
      provisions.giveBack();
      throw Arrival.failed(name, decision.indexOf(decision.maker));
    }
    return new Place<>(own, parent.device(), child, config, name, provisions, start, k -> null);
  }

  /** Says for those who gave up, and may not have seen the decision, that they do not come. */
  private void excuse(Decision decision) {
    VarHandle.fullFence();
    for (int i = 0; i < decision.members.length; i++) {
      if (control.getAcquire(word(decision.members[i])) == GIVES_UP) {
        lost(decision, i);
      }
    }
  }

  private void lost(Decision decision, int member) {
    int n = decision.members.length;
    ControlBlock child = Child.find(part, decision.handle, decision.maker, n);
    if (child != null) {
      LocalPart.lost(child, member);
    }
  }

  /** This rank does not go on: nobody waits for it, here or in the new communicator. */
  private void giveUp() {
    control.setRelease(word(rank), GIVES_UP);
    // Whoever decides after this look sees that.
    VarHandle.fullFence();
    if (control.getAcquire(control.decided()) != 0) {
      try {
        Decision decision = decision();
        int own = decision.indexOf(rank);
        if (own >= 0) {
          lost(decision, own);
        }
      } catch (NcclException impossible) {
        // The peer that decided is no rank of this library: there is nothing to say to it.
        health.failUnlessClosed(impossible);
      }
    }
  }
}

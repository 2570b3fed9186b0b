package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import java.util.BitSet;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Consumer;
import org.jspecify.annotations.Nullable;

/**
 * The state of one rendezvous in its creator's process: who has come, and what came of it.
 *
 * <p>It ends twice. The outcome is known when all ranks have come, or one cannot; then each rank
 * takes what it needs of memory, mappings and descriptors, and the verdict is known when all have
 * it, or one has not. Only what all ranks are ready for goes on.
 *
 * <p>Knows nothing of sockets. Threads: any. Memory: it owns the heap descriptors given to it,
 * until everybody who called {@link #retain} has called {@link #release}.
 */
final class Gathering {
  private static final int MAX_NAMED = 16;

  private final CompletableFuture<Outcome> outcome = new CompletableFuture<>();
  private final CompletableFuture<Optional<Failure>> verdict = new CompletableFuture<>();
  private final List<Consumer<Outcome>> listeners = new CopyOnWriteArrayList<>();
  private final Map<UUID, Integer> heaps = new HashMap<>();
  private final Map<UUID, Seat> processes = new HashMap<>();
  private @Nullable Outcome decision;
  private @Nullable Optional<Failure> agreement;
  private @Nullable Seat first;
  private Seat[] seats = {};
  private final BitSet arrived = new BitSet();

  /** Ranks that have come, be it in vain. */
  private final BitSet came = new BitSet();

  /** Ranks that have all they need. */
  private final BitSet ready = new BitSet();

  private int holders;

  /** What came of it: exactly one of the two is there. */
  record Outcome(@Nullable Answer answer, @Nullable Failure failure) {}

  /** Completes once, never exceptionally. */
  CompletableFuture<Outcome> outcome() {
    return outcome;
  }

  /**
   * Completes once, never exceptionally, after an outcome without failure: with nothing if all
   * ranks go on, otherwise with the reason why none does.
   */
  CompletableFuture<Optional<Failure>> verdict() {
    return verdict;
  }

  /** Calls back once with the outcome, on whatever thread. Only before anybody can join. */
  void onEnd(Consumer<Outcome> listener) {
    listeners.add(listener);
  }

  /** Announces the decision, once; not under the lock, because it calls back. */
  private void publish() {
    Outcome decided;
    Optional<Failure> agreed;
    synchronized (this) {
      decided = decision;
      agreed = agreement;
    }
    if (decided != null && outcome.complete(decided)) {
      listeners.forEach(listener -> listener.accept(decided));
    }
    if (agreed != null) {
      verdict.complete(agreed);
    }
  }

  /** Keeps the descriptors open. */
  synchronized void retain() {
    holders++;
  }

  /** Ends one {@link #retain}; the last one closes the descriptors. */
  synchronized void release() {
    if (--holders == 0) {
      heaps.values().forEach(Descriptors::close);
      heaps.clear();
    }
  }

  /**
   * A rank has come. A contradiction ends the rendezvous for all.
   *
   * @param seat the rank
   * @param heapFd its heap, owned by this object from now on; -1 if it has none
   * @return why this rank alone is turned away; null if it is to wait for the outcome
   */
  @Nullable Failure admit(Seat seat, int heapFd) {
    synchronized (this) {
      came.set(seat.rank());
      if (decision != null) {
        closeIfAny(heapFd);
        Failure earlier = decision.failure();
        return earlier != null ? earlier : Failure.used();
      }
      Failure contradiction = contradiction(seat);
      if (contradiction == null && heapFd >= 0) {
        contradiction = flaw(seat, heapFd);
      }
      if (contradiction != null
          || heapFd < 0
          || heaps.putIfAbsent(seat.process(), heapFd) != null) {
        closeIfAny(heapFd);
      }
      if (contradiction != null) {
        decision = new Outcome(null, contradiction);
      } else {
        take(seat);
      }
    }
    publish();
    return null;
  }

  private void take(Seat seat) {
    if (first == null) {
      first = seat;
      seats = new Seat[seat.joiner().nranks()];
    }
    processes.putIfAbsent(seat.process(), seat);
    seats[seat.rank()] = seat;
    arrived.set(seat.rank());
    if (arrived.cardinality() == seats.length) {
      decision = new Outcome(Answer.of(seats), null);
    }
  }

  /** A rank cannot come: the others need not wait for it. */
  void decline(int rank, Failure reason) {
    synchronized (this) {
      if (rank >= 0 && rank < Joiner.MAX_RANKS) {
        came.set(rank);
      }
    }
    fail(reason);
  }

  /** A rank has all it needs, and waits for the verdict. */
  void ready(int rank) {
    synchronized (this) {
      ready.set(rank);
      if (agreement == null && ready.cardinality() == seats.length) {
        agreement = Optional.empty();
      }
    }
    publish();
  }

  /** Ends the rendezvous for all, unless it has ended. */
  void fail(Failure failure) {
    synchronized (this) {
      if (decision == null) {
        decision = new Outcome(null, failure);
      } else if (decision.failure() == null && agreement == null) {
        agreement = Optional.of(failure);
      }
    }
    publish();
  }

  /** Ends the rendezvous because its id has waited long enough, unless a rank has come. */
  void expireUnused(Deadline deadline) {
    synchronized (this) {
      if (first == null && decision == null) {
        decision =
            new Outcome(
                null,
                new Failure(
                    Failure.Kind.DEADLINE,
                    -1,
                    "no rank used the unique id within " + deadline + " of its creation",
                    "create it shortly before the ranks join, or allow more time in the process"
                        + " that creates it: NCCL4J_INIT_TIMEOUT"));
      }
    }
    publish();
  }

  /** Ends the rendezvous because this rank waits no longer, unless it has ended. */
  void expire(Seat seat, Deadline deadline) {
    fail(
        new Failure(
            Failure.Kind.DEADLINE,
            missing().stream().boxed().toList(),
            attendance() + ", and rank " + seat.rank() + " waited " + deadline,
            "look for the cause where they run, or allow more time: init-timeout,"
                + " NCCL4J_INIT_TIMEOUT"));
  }

  private synchronized BitSet missing() {
    BitSet missing = (BitSet) (decision == null ? arrived : ready).clone();
    missing.flip(0, seats.length);
    return missing;
  }

  private synchronized String attendance() {
    BitSet missing = missing();
    if (decision != null) {
      return "all "
          + seats.length
          + " ranks joined, but not all got the memory and the mappings they need: "
          + ranks(missing)
          + " did not";
    }
    return arrived.cardinality()
        + " of "
        + seats.length
        + " ranks joined: "
        + ranks(arrived)
        + " did, "
        + ranks(missing)
        + " did not";
  }

  /** Whether every rank has come, be it to be turned away; false while nobody has. */
  synchronized boolean everybodyCame() {
    return first != null && came.cardinality() >= seats.length;
  }

  /** The descriptors of these processes; they stay this object's. */
  synchronized int[] heaps(List<UUID> of) {
    return of.stream().mapToInt(heaps::get).toArray();
  }

  private @Nullable Failure contradiction(Seat seat) {
    if (first == null) {
      return null;
    }
    Joiner joiner = seat.joiner();
    if (joiner.nranks() != seats.length) {
      return Failure.usage(
          seat.rank(),
          seat + " joins " + joiner.nranks() + " ranks, " + first + " joins " + seats.length,
          "give all ranks the same nranks");
    }
    Seat holder = seats[seat.rank()];
    if (holder != null) {
      return Failure.usage(
          seat.rank(),
          "rank "
              + seat.rank()
              + " was taken twice: by processes "
              + holder.pid()
              + " and "
              + seat.pid(),
          "give each rank its own number");
    }
    if (!seat.build().equals(first.build())) {
      return Failure.usage(
          seat.rank(),
          seat + " runs nccl4j " + seat.build() + ", " + first + " runs " + first.build(),
          "use the same nccl4j jars in all processes");
    }
    if (seat.pageSize() != first.pageSize()) {
      return Failure.usage(
          seat.rank(),
          seat + " has pages of " + seat.pageSize() + " B, " + first + " of " + first.pageSize(),
          "run all processes on the same kernel and C library");
    }
    if (joiner.layoutHash() != first.joiner().layoutHash()) {
      return Failure.usage(
          seat.rank(),
          seat + " and " + first + " lay out shared memory differently",
          "use the same nccl4j jars and the same configuration in all processes");
    }
    if (!joiner.security().equals(first.joiner().security())) {
      return Failure.usage(
          seat.rank(),
          "NCCL4J_NETWORK_SECURITY is "
              + joiner.security()
              + " for "
              + seat
              + ", "
              + first.joiner().security()
              + " for "
              + first,
          "give all processes the same value");
    }
    return processContradiction(seat);
  }

  private @Nullable Failure processContradiction(Seat seat) {
    Seat mate = processes.get(seat.process());
    if (mate != null) {
      boolean same =
          mate.pid() == seat.pid()
              && mate.pids() == seat.pids()
              && mate.shareable() == seat.shareable()
              && mate.joiner().heapBytes() == seat.joiner().heapBytes();
      return same
          ? null
          : Failure.usage(
              seat.rank(),
              seat + " and " + mate + " name the same process but different heaps or process ids",
              "give each process its own random name");
    }
    for (Seat other : processes.values()) {
      if (!other.shareable() || !seat.shareable()) {
        Seat cause = other.shareable() ? seat : other;
        String why = cause.joiner().restriction();
        return new Failure(
            Failure.Kind.BACKEND,
            cause.rank(),
            cause
                + " cannot share its heap with other processes"
                + (why.isEmpty() ? "" : ": " + why),
            why.isEmpty()
                ? "run all ranks in one process, or give that process native access"
                : "run all ranks in one process, or fix that");
      }
    }
    return null;
  }

  /** Why a heap is refused; every process that maps it looks for itself again. */
  private static @Nullable Failure flaw(Seat seat, int heapFd) {
    try {
      String flaw = HeapFile.flaw(heapFd, seat.joiner().heapBytes());
      return flaw == null
          ? null
          : new Failure(
              Failure.Kind.PEER,
              seat.rank(),
              seat + " offers a heap that " + flaw,
              "check what that process runs: nccl4j creates no such heap");
    } catch (LibcException e) {
      return new Failure(
          Failure.Kind.SYSTEM,
          seat.rank(),
          "the heap of " + seat + " cannot be examined: " + e.getMessage(),
          "");
    }
  }

  private static void closeIfAny(int fd) {
    if (fd >= 0) {
      Descriptors.close(fd);
    }
  }

  /** Names ranks, the first few of them. */
  private static String ranks(BitSet ranks) {
    StringBuilder text = new StringBuilder(ranks.cardinality() == 1 ? "rank" : "ranks");
    int named = 0;
    for (int rank = ranks.nextSetBit(0); rank >= 0; rank = ranks.nextSetBit(rank + 1)) {
      if (named == MAX_NAMED) {
        return text + " and " + (ranks.cardinality() - named) + " more";
      }
      text.append(named++ == 0 ? " " : ", ").append(rank);
    }
    return named == 0 ? "none" : text.toString();
  }

  /** Duplicates of descriptors, all or none. */
  static int[] duplicates(int[] fds) {
    int[] copies = new int[fds.length];
    int made = 0;
    try {
      for (; made < fds.length; made++) {
        copies[made] = Descriptors.dup(fds[made]);
      }
      return copies;
    } catch (LibcException e) {
      while (made > 0) {
        Descriptors.close(copies[--made]);
      }
      throw e;
    }
  }
}

package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.NcclException;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.internal.bootstrap.CommonFile;
import io.nccl4j.internal.liveness.DeathWatch;
import io.nccl4j.internal.machine.ProcessFiles;
import io.nccl4j.internal.schedule.Wording;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.ArrayList;
import java.util.List;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * The ranks of one communicator that live in other processes of this machine, as far as these have
 * the same user and the same files: which process each is in, how many collectives it has called,
 * whether it has left, failed or died. NCCL tells nothing of this.
 *
 * <p>Each rank has a place in common memory; that of a process's first rank also holds the
 * process's death signal. Thread-safe.
 */
final class Neighbours {
  /**
   * A rank of another process, at one moment.
   *
   * @param pid 0 if its process has no number here
   * @param collectives how many it has called
   */
  record Neighbour(int rank, long pid, long collectives, boolean hasLeft, boolean isDead) {
    /** Whether its process is stopped; looks at it. */
    boolean isStopped() {
      return !isDead && pid > 0 && ProcessFiles.HERE.isStopped(pid);
    }

    /** The rank and its process, in words. */
    String describe() {
      String process = pid == 0 ? "another process" : "process " + pid;
      String state = isDead ? ", which died" : isStopped() ? ", which is stopped" : "";
      return Wording.behind(rank, process + state, collectives, "");
    }
  }

  /** Why a rank does not take part in a split. */
  record Refusal(int rank, String reason) {}

  private static final Logger LOG = LogManager.getLogger(Neighbours.class);

  /** Processes of another layout do not find each other. */
  private static final String LAYOUT = "nccl4j neighbours 3 ";

  // Places, each with the death signal and these longs; behind them the note of the failure.
  private static final int PLACE_BYTES = 512;
  private static final int PID = 64;
  private static final int PID_SPACE = 72;
  private static final int FIRST = 80;
  private static final int RANK = 88;
  private static final int COLLECTIVES = 96;
  private static final int HAS_LEFT = 104;
  private static final int PROCESS_LEFT = 112;

  // The split in which the rank was refused, and why. There is room for two, used in turn: a slow
  // rank may still read the one when the next split refuses it again.
  private static final int REFUSED = 128;
  private static final int REFUSED_BYTES = 192;
  private static final int REASON = 8;
  private static final int REASON_BYTES = REFUSED_BYTES - REASON;

  private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

  private final CommonFile file;
  private final MemorySegment memory;
  private final FailureNote note;
  private final int places;
  private final int first;
  private final DeathWatch watch;
  private final boolean[] dead;
  private final long pidSpace = ProcessFiles.HERE.namespace("pid").orElse(0);
  private volatile boolean anyDead;
  private int here;
  private boolean watching;

  private Neighbours(CommonFile file, int places, int first, String name) {
    this.file = file;
    this.memory = file.memory();
    this.note =
        new FailureNote(memory.asSlice((long) places * PLACE_BYTES, FailureNote.BYTES), first);
    this.places = places;
    this.first = first;
    dead = new boolean[places];
    MemorySegment[] signals = new MemorySegment[places];
    for (int i = 0; i < places; i++) {
      signals[i] = memory.asSlice((long) i * PLACE_BYTES, DeathWatch.MUTEX_BYTES);
    }
    watch =
        new DeathWatch(
            "nccl4j-watch-" + name, signals, first, this::isGone, this::died, this::cannotWatch);
    DeathWatch.format(signals[first]);
    watch.hold();
  }

  /**
   * Looks for the processes of a communicator, before its ranks join; null if this process cannot
   * be seen by others, which then know as much of it as NCCL does.
   *
   * @param secret what only the communicator's ranks know
   * @param places ranks that there may be
   * @param first the place of this process's first rank
   */
  static @Nullable Neighbours find(String secret, int places, int first, String name) {
    CommonFile file = null;
    try {
      file = CommonFile.open(LAYOUT + secret, places * PLACE_BYTES + FailureNote.BYTES);
      return new Neighbours(file, places, first, name);
    } catch (NcclException | LibcException | UnsupportedOperationException e) {
      LOG.debug("{}: other processes will not be told of a death here", name, e);
      if (file != null) {
        file.remove();
      }
      return null;
    }
  }

  private long get(int place, int field) {
    return (long) LONG.getAcquire(memory, (long) place * PLACE_BYTES + field);
  }

  private void set(int place, int field, long value) {
    LONG.setRelease(memory, (long) place * PLACE_BYTES + field, value);
  }

  // ---- this process's ranks

  /** A rank of this process takes its place; before it joins. */
  synchronized void enter(int place) {
    here++;
    set(place, PID, ProcessHandle.current().pid());
    set(place, PID_SPACE, pidSpace);
    set(place, FIRST, first + 1L);
  }

  /** It has joined, and with it all others have taken their places. */
  synchronized void joined(int place, int rank) {
    set(place, RANK, rank + 1L);
    file.remove();
    if (!watching && count() > here) {
      watching = true;
      watch.watch();
    }
  }

  /** How many collectives a rank has called; a little later than it does. */
  void publish(int place, long collectives) {
    LONG.setOpaque(memory, (long) place * PLACE_BYTES + COLLECTIVES, collectives);
  }

  /** A rank of this process has failed. */
  void failed(int rank, NcclException cause) {
    note.write(rank, cause);
  }

  /** A rank of this process is refused in a split, before it takes part in that. */
  void refuse(int place, long split, String reason) {
    int at = refused(split);
    SharedText.write(memory, (long) place * PLACE_BYTES + at + REASON, REASON_BYTES, reason);
    set(place, at, split);
  }

  private static int refused(long split) {
    return REFUSED + (int) (split % 2) * REFUSED_BYTES;
  }

  /** A rank leaves, or does not join after all; once. */
  synchronized void leave(int place, long collectives) {
    if (get(place, HAS_LEFT) != 0) {
      return;
    }
    publish(place, collectives);
    set(place, HAS_LEFT, 1);
    if (--here == 0) {
      set(first, PROCESS_LEFT, 1);
      watch.close();
      file.remove();
    }
  }

  // ---- those of others

  /** Ranks of this machine, these included. */
  int count() {
    int count = 0;
    for (int i = 0; i < places; i++) {
      count += get(i, FIRST) != 0 ? 1 : 0;
    }
    return count;
  }

  /** The ranks of other processes. */
  List<Neighbour> others() {
    List<Neighbour> others = new ArrayList<>();
    for (int i = 0; i < places; i++) {
      if (isElsewhere(i)) {
        others.add(at(i));
      }
    }
    return others;
  }

  private boolean isElsewhere(int place) {
    long of = get(place, FIRST) - 1;
    return of >= 0 && of < places && of != first;
  }

  private Neighbour at(int place) {
    long rank = get(place, RANK) - 1;
    // The number of a process of another namespace is somebody else's here.
    long pid = get(place, PID_SPACE) == pidSpace ? get(place, PID) : 0;
    boolean hasLeft = get(place, HAS_LEFT) != 0;
    return new Neighbour(
        (int) (rank < 0 ? place : rank),
        pid,
        get(place, COLLECTIVES),
        hasLeft,
        anyDead && dead[(int) get(place, FIRST) - 1] && !hasLeft);
  }

  /** The ranks of processes that died before all had joined: the watch begins after that. */
  List<Neighbour> deadWhileJoining() {
    List<Neighbour> found = new ArrayList<>();
    for (int i = 0; i < places; i++) {
      int of = isElsewhere(i) ? (int) get(i, FIRST) - 1 : -1;
      // A process says that it has left before it lets go.
      if (of >= 0 && !watch.isHeld(of) && get(of, PROCESS_LEFT) == 0) {
        found.add(at(i));
      }
    }
    return found;
  }

  /** The ranks that died with their process. */
  List<Neighbour> dead() {
    return anyDead ? others().stream().filter(Neighbour::isDead).toList() : List.of();
  }

  /** What ranks here are told of the first failure, if it is of another process; null if not. */
  @Nullable NcclException failure(String communicator) {
    return note.read(communicator);
  }

  /** A rank that left before it called a collective; null if there is none. Allocates nothing. */
  @Nullable Neighbour leftBefore(long seq) {
    for (int i = 0; i < places; i++) {
      if (isElsewhere(i) && get(i, HAS_LEFT) != 0 && get(i, COLLECTIVES) < seq) {
        return at(i);
      }
    }
    return null;
  }

  /** The first rank that was refused in a split, which all have made; null if there is none. */
  @Nullable Refusal refusal(long split) {
    int at = refused(split);
    for (int i = 0; i < places; i++) {
      if (isElsewhere(i) && get(i, at) == split) {
        long reasonAt = (long) i * PLACE_BYTES + at + REASON;
        return new Refusal(at(i).rank(), SharedText.read(memory, reasonAt, REASON_BYTES));
      }
    }
    return null;
  }

  // ---- by the watch, which allocates nothing

  /** No process has this place, or it has left in good order. */
  private boolean isGone(int place) {
    return get(place, FIRST) != place + 1L || get(place, PROCESS_LEFT) != 0;
  }

  private void died(int place) {
    dead[place] = true;
    anyDead = true;
  }

  private void cannotWatch(Throwable cause) {
    LOG.warn("the deaths of other processes can no longer be noticed: {}", cause.toString());
  }
}

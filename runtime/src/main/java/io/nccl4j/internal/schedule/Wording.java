package io.nccl4j.internal.schedule;

import io.nccl4j.AbortedException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.spi.Failures;
import java.util.List;

/**
 * What a communicator says when its ranks contradict each other, when one is late, and when it
 * cannot be used: the same words on every backend, which knows the facts. Thread-safe.
 */
public final class Wording {
  private final String communicator;
  private final WorkFifo<? extends Work> fifo;

  /** Of the communicator with that name, for a rank with that FIFO. */
  public Wording(String communicator, WorkFifo<? extends Work> fifo) {
    this.communicator = communicator;
    this.fifo = fifo;
  }

  // ---- contradictions

  /** The communicator, as messages name it. */
  public String name() {
    return "communicator " + communicator;
  }

  private String between(int a, int b) {
    return "ranks " + a + " and " + b + " of communicator " + communicator + " disagree";
  }

  private static String called(int a, String one, int b, String other) {
    return ": rank " + a + " called " + one + ", rank " + b + " called " + other;
  }

  /** Two ranks called different collectives, in words. */
  public String collectives(long seq, int a, String one, int b, String other) {
    return between(a, b) + " at collective #" + seq + called(a, one, b, other);
  }

  /** A call in which all ranks pass the counts of all, with the one that differs. */
  public static String withCount(String call, long count, int of) {
    return call + " with " + count + " elements for rank " + of;
  }

  /**
   * Two ranks call the same now, but what they called before shows that they must not, in words.
   */
  public String earlier(long seq, int a, int b, String call) {
    return between(a, b)
        + " on counts in collective #"
        + seq
        + ", or in a collective before it; both call "
        + call;
  }

  /** The failure that {@link #collectives} describes. */
  public static MismatchException differentCollectives(String problem) {
    return new MismatchException(
        problem, "issue the same collectives in the same order on all ranks");
  }

  /** A receive does not fit its send, in words. */
  public String messages(int receiver, String receive, int sender, String send) {
    return between(receiver, sender) + called(receiver, receive, sender, send);
  }

  /** The failure that {@link #messages} describes. */
  public static MismatchException differentMessages(String problem) {
    return new MismatchException(problem, "give send and recv the same count and type");
  }

  /**
   * In v-forms only a pair knows that its counts differ.
   *
   * @param verb what {@code peer} does to {@code rank}: it sends to it or expects of it
   */
  public MismatchException counts(
      String operation, int rank, long own, int peer, String verb, long theirs) {
    return new MismatchException(
        between(rank, peer)
            + " in "
            + operation
            + ": rank "
            + peer
            + " "
            + verb
            + " rank "
            + rank
            + " "
            + theirs
            + " elements, rank "
            + rank
            + " counts on "
            + own,
        "make both ranks' counts equal");
  }

  // ---- waiting

  /**
   * A work was waited for longer than operations may take.
   *
   * @param started whether it could be started in that time
   */
  public DeadlineException late(
      Work work, boolean started, long timeoutNanos, String missing, List<Integer> absent) {
    return new DeadlineException(
        work.describe()
            + " is not "
            + (started ? "complete" : "started")
            + " after "
            + timeoutNanos / 1_000_000
            + " ms, waiting for "
            + missing
            + backlog(),
        started
            ? "check whether those ranks hang or called something else; operation-timeout sets the"
                + " deadline"
            : "check the other ranks; a thread that drives several ranks must issue their"
                + " operations in one group",
        absent);
  }

  /** How full the rank's FIFO is, and with which work at its old end. */
  public String backlog() {
    Work oldest = fifo.oldestInUse();
    return "; "
        + fifo.takenBytes()
        + " of "
        + (long) fifo.capacity() * Work.BYTES
        + " bytes of this rank's work FIFO are taken, "
        + fifo.inUse()
        + " of "
        + fifo.capacity()
        + " works are unfinished"
        + (oldest == null ? "" : ", the oldest is " + oldest.describe());
  }

  /** A rank that has not called a collective, and its last one. */
  public static String behind(int rank, long last, String call) {
    return behind(rank, "", last, call);
  }

  /**
   * A rank that has not called a collective, its process, and its last collective.
   *
   * @param where its process, in words; empty if that explains nothing
   * @param call the last collective; empty if it is not known
   */
  public static String behind(int rank, String where, long last, String call) {
    return of(
        rank,
        where,
        last == 0
            ? "it has called no collective yet"
            : "its last collective is #" + last + (call.isEmpty() ? "" : ": " + call));
  }

  /** A rank, and what is known of it. */
  public static String of(int rank, String where, String known) {
    return "rank " + rank + " (" + (where.isEmpty() ? "" : where + "; ") + known + ")";
  }

  /** A rank has left that an operation needs. */
  public static PeerFailedException left(String operation, int peer, long last) {
    return new PeerFailedException(
        peer,
        operation
            + ": rank "
            + peer
            + " left the communicator before "
            + (last == 0 ? "it called any collective" : "that, after collective #" + last),
        "let every rank issue the same operations before it closes the communicator");
  }

  /** A rank died with its process, in words. */
  public String death(int rank, long pid) {
    return death(rank, pid, communicator);
  }

  /** The same for a communicator that has not come about yet. */
  public static String death(int rank, long pid, String communicator) {
    return "rank "
        + rank
        + " of communicator "
        + communicator
        + " died"
        + (pid == 0 ? "" : " (process " + pid + ")");
  }

  /**
   * The failure of ranks whose processes died.
   *
   * @param deaths of each, in words
   */
  public static PeerFailedException died(List<Integer> ranks, List<String> deaths) {
    return new PeerFailedException(
        ranks, String.join(", and ", deaths), "check its output; close this communicator");
  }

  /** What other ranks hear when one is refused in a call that all make, such as a split. */
  public static PeerFailedException refused(
      String what, int rank, String communicator, String reason) {
    return new PeerFailedException(
        rank,
        what
            + ": rank "
            + rank
            + " of communicator "
            + communicator
            + " cannot take part: "
            + reason,
        "fix it there; no rank has a new communicator, and this one stays usable");
  }

  // ---- communicators that cannot be used

  /** The refusal of a call on a closed communicator. */
  public InvalidUsageException closed() {
    return new InvalidUsageException(
        "communicator " + communicator + " is closed", "create a new one");
  }

  /** The refusal of a call on a communicator that has failed. */
  public NcclException failed(NcclException cause) {
    return Failures.again(
        cause,
        "communicator " + communicator + " has failed: " + cause.problem(),
        "close it and create a new one",
        cause.failedRanks());
  }

  /** The refusal to close a communicator that has operations in an open group. */
  public InvalidUsageException inOpenGroup() {
    return new InvalidUsageException(
        "communicator " + communicator + " has operations in an open group",
        "launch or close the group first");
  }

  /** What was unfinished when something was closed is given up. */
  public static AbortedException closedEarly(String problem) {
    return new AbortedException(
        problem, "synchronize before closing; close-timeout sets how long close waits");
  }
}

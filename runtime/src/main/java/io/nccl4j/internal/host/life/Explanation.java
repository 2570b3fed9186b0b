package io.nccl4j.internal.host.life;

import io.nccl4j.DeadlineException;
import io.nccl4j.MismatchException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.host.engine.EngineWork;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.layout.Ledger;
import io.nccl4j.internal.machine.ProcessFiles;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.WorkFifo;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** Says what went wrong between ranks, from what their ledgers hold. */
public final class Explanation {
  /** How far back a contradiction may lie that a chained signature shows. */
  private static final int LOOK_BACK = 2 * Layout.OUTBOX_SLOTS;

  private final String name;
  private final Wording wording;
  private final WorkFifo<? extends EngineWork> fifo;
  private final Ledger ledger;
  private final LocalPart part;
  private final int rank;
  private volatile @Nullable Outside outside;

  /** Explains the failures of one rank of the communicator called {@code name}. */
  public Explanation(
      String name, int rank, WorkFifo<? extends EngineWork> fifo, Ledger ledger, LocalPart part) {
    this.name = name;
    this.wording = new Wording(name, fifo);
    this.rank = rank;
    this.fifo = fifo;
    this.ledger = ledger;
    this.part = part;
  }

  /** There are ranks on other hosts. */
  void reach(Outside others) {
    outside = others;
  }

  /** What is known of a rank's calls: all, if it is on this host. */
  private Outside.Answer answer(int k) {
    Outside others = outside;
    return others == null || part.isHere(k) ? Outside.Answer.GIVEN : others.answer(k);
  }

  String name() {
    return name;
  }

  /** What is said on every backend. */
  public Wording wording() {
    return wording;
  }

  /** These ranks died, and nothing else is known to have gone wrong before. */
  PeerFailedException died(List<Integer> ranks) {
    return Wording.died(ranks, eachDeath(ranks));
  }

  /** Says in words which processes died. */
  String deaths(List<Integer> ranks) {
    return String.join(", and ", eachDeath(ranks));
  }

  private List<String> eachDeath(List<Integer> ranks) {
    return ranks.stream().map(k -> wording.death(k, part.group().pid(part.processOf(k)))).toList();
  }

  PeerFailedException left(EngineWork work, int peer) {
    return Wording.left(work.describe(), peer, ledger.lastCollective(peer));
  }

  // ---- contradictions

  /**
   * The first collective in which this rank and a peer differ: signatures are chained, so it may
   * lie back.
   */
  long firstDifference(int peer, long seq) {
    for (long s = Math.max(1, seq - LOOK_BACK); s < seq; s++) {
      if (disagree(rank, peer, s)) {
        return s;
      }
    }
    return seq;
  }

  private boolean disagree(int a, int b, long seq) {
    Ledger.Call one = ledger.findCollective(a, seq);
    Ledger.Call other = ledger.findCollective(b, seq);
    return one != null && other != null && !one.agrees(other);
  }

  MismatchException collectives(int peer, long seq) {
    return Wording.differentCollectives(difference(rank, peer, seq));
  }

  /**
   * As rank {@code k} told: it and {@code other} differ; perhaps this rank does, too.
   *
   * @param told what that rank said, with what only it could know; empty if it said nothing
   */
  MismatchException collectivesSeenBy(int k, int other, long seq, String told) {
    return Wording.differentCollectives(
        other != rank && disagree(rank, k, seq)
            ? difference(rank, k, seq)
            : (told.isEmpty() ? difference(k, other, seq) : told) + " (found by rank " + k + ")");
  }

  private String difference(int a, int b, long seq) {
    Ledger.Call one = ledger.findCollective(a, seq);
    Ledger.Call other = ledger.findCollective(b, seq);
    int differing = one != null && other != null ? differingCount(a, one, b, other) : -1;
    return wording.collectives(
        one == null ? seq : one.seq(),
        a,
        withCount(Ledger.describe(one), a, seq, differing),
        b,
        withCount(Ledger.describe(other), b, seq, differing));
  }

  /** The first rank for which two ranks pass different counts, where all pass those of all. */
  private int differingCount(int a, Ledger.Call one, int b, Ledger.Call other) {
    boolean sameCall = one.hasCommonCounts() && one.agrees(other);
    for (int k = 0; sameCall && k < part.nranks(); k++) {
      long shown = part.control().shownCount(a, one.seq(), k);
      long others = part.control().shownCount(b, one.seq(), k);
      if (shown >= 0 && others >= 0 && shown != others) {
        return k;
      }
    }
    return -1;
  }

  private String withCount(String call, int k, long seq, int of) {
    return of < 0 ? call : Wording.withCount(call, part.control().shownCount(k, seq, of), of);
  }

  /** This rank's receive does not fit the peer's send. */
  MismatchException messages(EngineWork receive, int peer) {
    return Wording.differentMessages(messages(rank, peer, receive.seq));
  }

  /** As rank {@code k}, the receiver, told. */
  MismatchException messagesSeenBy(int k, int sender, long seq) {
    return Wording.differentMessages(messages(k, sender, seq) + " (found by rank " + k + ")");
  }

  private String messages(int receiver, int sender, long seq) {
    return wording.messages(
        receiver,
        Ledger.describe(ledger.findMessage(receiver, Operation.RECV, sender, seq)),
        sender,
        Ledger.describe(ledger.findMessage(sender, Operation.SEND, receiver, seq)));
  }

  /** In v-forms only a pair knows that its counts differ. */
  MismatchException counts(EngineWork work, int peer, long theirs, long own, String verb) {
    return wording.counts(work.operation.label() + " #" + work.seq, rank, own, peer, verb, theirs);
  }

  // ---- waiting

  /** A work is not complete in time. */
  DeadlineException incomplete(EngineWork work, long timeoutNanos) {
    return wording.late(work, true, timeoutNanos, missing(work), absent(work));
  }

  /** No room in the FIFO came free although nothing was left to wait for, or nothing moved. */
  public DeadlineException noRoom(long timeoutNanos, long next, boolean queued) {
    EngineWork oldest = fifo.oldest();
    String notArrived = behind(next, -1);
    return new DeadlineException(
        "rank "
            + rank
            + " of communicator "
            + name
            + " found no room in its work FIFO for "
            + timeoutNanos / 1_000_000
            + " ms, to submit what follows collective #"
            + (next - 1)
            + wording.backlog()
            + (queued
                ? ", waiting for " + missing(oldest)
                : ", which is in no stream: nothing will give its room back")
            + "; "
            + (notArrived.isEmpty()
                ? "all other ranks have called collective #" + next
                : "not arrived at collective #" + next + ": " + notArrived),
        "check whether those ranks hang, or another thread keeps a group open; operation-timeout"
            + " sets the deadline",
        queued ? absent(oldest) : notArrived(next));
  }

  /** The ranks that a work waits for in vain: those that have not called it, or it cannot be. */
  private List<Integer> absent(EngineWork work) {
    int peer = work.blockedOn;
    if (peer < 0) {
      return List.of();
    }
    List<Integer> absent = work.isCollective() ? notArrived(work.seq) : List.of();
    return absent.isEmpty() ? List.of(peer) : absent;
  }

  private List<Integer> notArrived(long seq) {
    List<Integer> ranks = new ArrayList<>();
    for (int k = 0; k < part.nranks(); k++) {
      boolean absent =
          switch (answer(k)) {
            case GIVEN -> ledger.lastCollective(k) < seq;
            case NONE -> true;
            case NOT_ASKED -> false;
          };
      if (k != rank && absent) {
        ranks.add(k);
      }
    }
    return ranks;
  }

  /** Which ranks a work waits for, and where they are. */
  public String missing(EngineWork work) {
    int peer = work.blockedOn;
    if (peer < 0) {
      return "earlier operations of its communicator";
    }
    if (!work.isCollective()) {
      String stopped = stopped(peer);
      return "rank "
          + peer
          + (stopped.isEmpty() ? "" : " (" + stopped + ")")
          + " to call "
          + (work.operation == Operation.SEND ? "recv" : "send");
    }
    return behind(work.seq, peer);
  }

  /**
   * The other ranks that have not called a collective, and their last ones.
   *
   * @param peer a rank to name in any case, or −1
   */
  private String behind(long seq, int peer) {
    StringBuilder text = new StringBuilder();
    for (int k = 0; k < part.nranks(); k++) {
      Outside.Answer answer = answer(k);
      if (answer != Outside.Answer.GIVEN) {
        boolean asked = answer == Outside.Answer.NONE;
        if (asked || k == peer) {
          text.append(text.isEmpty() ? "" : ", ").append("rank ").append(k);
          text.append(" (on another host").append(asked ? ", which does not answer)" : ")");
        }
        continue;
      }
      long last = ledger.lastCollective(k);
      if (k != rank && (last < seq || k == peer)) {
        String call = Ledger.describe(ledger.findCollective(k, last));
        text.append(text.isEmpty() ? "" : ", ");
        text.append(
            last < seq
                ? Wording.behind(k, stopped(k), last, call)
                : Wording.of(k, stopped(k), "which has called it: " + call));
      }
    }
    return text.toString();
  }

  /** The process of a rank of this host, if it is stopped: nothing else tells that from a hang. */
  private String stopped(int k) {
    int process = part.processOf(k);
    long pid = process == LocalPart.ELSEWHERE ? 0 : part.group().pid(process);
    return pid > 0 && ProcessFiles.HERE.isStopped(pid)
        ? "process " + pid + ", which is stopped"
        : "";
  }
}

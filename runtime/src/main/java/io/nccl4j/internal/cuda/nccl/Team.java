package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.AbortedException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.internal.cuda.memory.DeviceMemory;
import io.nccl4j.internal.cuda.nccl.Neighbours.Neighbour;
import io.nccl4j.internal.cuda.nccl.Neighbours.Refusal;
import io.nccl4j.internal.schedule.ScheduledCommunicator;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.Work;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.jspecify.annotations.Nullable;

/**
 * The ranks of one communicator that live in this process, and what is known of those in other
 * processes of this machine. NCCL does not tell the others when one gives up, nor what each was
 * doing: here they can at least see each other. Thread-safe.
 */
public final class Team {
  /**
   * A rank that has joined.
   *
   * @param place among the neighbours, if there are some
   */
  record Member(
      NcclRank self, CudaLedger ledger, CudaHealth health, BooleanSupplier taskEnded, int place) {
    int rank() {
      return self.rank();
    }
  }

  private final Teams<String> children = new Teams<>();
  private final boolean isWhole;
  private final String number;
  private final Set<Integer> joining = new HashSet<>();
  private final Map<Long, Refusal> refusals = new HashMap<>();

  // Each list is immutable: who walks through one by index reads the field once.
  private volatile List<Member> ranks = List.of();
  private volatile List<Member> departed = List.of();
  private int expected;
  private @Nullable NcclException failure;

  /** By rank. */
  private final Map<Integer, Integer> places = new HashMap<>();

  private String secret = "";
  private volatile @Nullable Neighbours neighbours;

  /**
   * A team.
   *
   * @param isWhole whether all ranks are known to live in this process, before they have joined
   */
  public Team(String number, boolean isWhole) {
    this.number = number;
    this.isWhole = isWhole;
  }

  /** What tells it from its siblings. */
  public String number() {
    return number;
  }

  /**
   * Adds a rank that has joined.
   *
   * @param taskEnded whether it issues no operation any more, until further notice
   */
  public void add(NcclRank rank, CudaHealth health, BooleanSupplier taskEnded) {
    synchronized (this) {
      ranks = with(ranks, new Member(rank, rank.ledger(), health, taskEnded, place(rank)));
    }
    NcclException before = failure();
    if (before != null) {
      health.fail(before);
    }
  }

  /** Among the neighbours. */
  private synchronized int place(NcclRank rank) {
    return places.getOrDefault(rank.rank(), rank.rank());
  }

  // ---- ranks of other processes of this machine

  /**
   * A rank is about to join, and looks for the processes of the others.
   *
   * @param common what only the ranks that join know
   * @param most how many they may be
   * @param place of this one among them
   */
  public synchronized void meet(String common, int most, int place) {
    if (secret.isEmpty()) {
      secret = common;
      neighbours = Neighbours.find(common, most, place, number);
    }
    if (neighbours != null) {
      neighbours.enter(place);
    }
  }

  /** The same for a child, whose ranks are some of this team's. */
  public void meetIn(Team child, int nranks, int place) {
    if (neighbours != null) {
      child.meet(secret + " " + child.number, nranks, place);
    }
  }

  /** It has joined, as a rank. */
  public synchronized void met(int place, int rank) {
    if (neighbours != null) {
      places.put(rank, place);
      neighbours.joined(place, rank);
    }
  }

  /** It does not join after all, and those that have come are told why. */
  public void unmet(int place, NcclException cause) {
    Neighbours near = neighbours;
    if (near != null) {
      near.failed(place, cause);
    }
    unmet(place);
  }

  /** It does not join after all, since it is in no child. */
  public void unmet(int place) {
    Neighbours near = neighbours;
    if (near != null) {
      near.leave(place, 0);
    }
  }

  /** Why the ranks of other processes here will not all join; null if nothing is known. */
  @Nullable NcclException absence(String name) {
    Neighbours near = neighbours;
    NcclException cause = near == null ? null : near.failure(name);
    if (near == null || cause != null) {
      return cause;
    }
    List<Neighbour> dead = near.deadWhileJoining();
    return dead.isEmpty()
        ? null
        : Wording.died(
            dead.stream().map(Neighbour::rank).toList(),
            dead.stream().map(one -> Wording.death(one.rank(), one.pid(), name)).toList());
  }

  /** Lets neighbours know how many collectives a rank has called; now and then. */
  void publish(NcclRank rank) {
    Neighbours near = neighbours;
    if (near != null) {
      for (Member member : ranks) {
        if (member.self == rank) {
          near.publish(member.place, member.ledger.collectives());
        }
      }
    }
  }

  private List<Neighbour> others() {
    Neighbours near = neighbours;
    return near == null ? List.of() : near.others();
  }

  /** How many ranks are known to be on this machine. */
  int ranksHere() {
    Neighbours near = neighbours;
    return near == null ? ranks.size() : near.count();
  }

  // ---- ranks of this process

  /** The devices of the ranks here, in no order. */
  public List<DeviceMemory> devices() {
    return ranks.stream().map(member -> member.self.memory()).toList();
  }

  /** A rank was closed: those that need more of it fail. */
  public synchronized void left(NcclRank rank) {
    for (Member member : ranks) {
      if (member.rank() == rank.rank()) {
        departed = with(departed, member);
        if (neighbours != null) {
          neighbours.leave(member.place, member.ledger.collectives());
        }
      }
    }
    ranks = ranks.stream().filter(member -> member.rank() != rank.rank()).toList();
  }

  private static List<Member> with(List<Member> ranks, Member another) {
    return Stream.concat(ranks.stream(), Stream.of(another)).toList();
  }

  /** The team of a split's color; {@code number} counts the splits. */
  public Team child(long number, int color) {
    return child(number + "-" + color, isWhole);
  }

  /** The team of a child that all its ranks here number alike. */
  public Team child(String childNumber) {
    return child(childNumber, false);
  }

  private Team child(String childNumber, boolean whole) {
    return children.get(childNumber, () -> new Team(childNumber, whole));
  }

  /**
   * A rank is refused in a split, before it takes part in that so that the others need not wait.
   *
   * @param split counts them, the same on all ranks
   * @return whether all ranks can learn of it; if not, there may be some on other machines
   */
  public boolean refuse(NcclRank refused, long split, NcclException cause) {
    synchronized (this) {
      // A slow rank may still look for the refusals of the split before.
      refusals.keySet().removeIf(old -> old < split - 1);
      refusals.putIfAbsent(split, new Refusal(refused.rank(), cause.problem()));
    }
    Neighbours near = neighbours;
    if (near != null) {
      near.refuse(place(refused), split, cause.problem());
    }
    return isWhole || ranksHere() == refused.nranks();
  }

  /** Why a split that all ranks have made is none after all; null if no rank was refused. */
  public @Nullable NcclException refusal(NcclRank self, long split) {
    Refusal refusal;
    synchronized (this) {
      refusal = refusals.get(split);
    }
    Neighbours near = neighbours;
    if (refusal == null && near != null) {
      refusal = near.refusal(split);
    }
    return refusal == null
        ? null
        : Wording.refused("split", refusal.rank(), self.name(), refusal.reason());
  }

  /** The other ranks cannot go on without the one that failed, nor can those yet to be added. */
  void failed(NcclRank failed, NcclException cause) {
    gaveUp(failed.rank(), failed.name(), cause);
    Neighbours near = neighbours;
    if (near != null) {
      near.failed(failed.rank(), cause);
    }
    for (Member other : ranks) {
      if (other.rank() != failed.rank()) {
        other.health.fail(relayed(failed.rank(), failed.name(), cause));
      }
    }
  }

  /** Notes why a rank goes on no longer, perhaps before it has joined. */
  public synchronized void gaveUp(int rank, String name, NcclException cause) {
    if (failure == null) {
      failure = relayed(rank, name, cause);
    }
  }

  /** What other ranks are told of the first that goes on no longer; null if there is none. */
  synchronized @Nullable NcclException failure() {
    return failure;
  }

  private static NcclException relayed(int rank, String name, NcclException cause) {
    return (switch (cause) {
          case AbortedException e -> new AbortedException(e.problem(), e.remedy(), e.failedRanks());
          case MismatchException e -> new MismatchException(e.problem(), e.remedy());
          default -> FailureNote.relayed(rank, name, cause.problem(), cause.failedRanks());
        })
        .causedBy(cause);
  }

  /** Which ranks have not called what {@code work} waits for, in words. */
  String missing(NcclRank waiting, Work work) {
    if (!work.isCollective()) {
      return others().stream()
          .filter(other -> other.rank() == work.root && other.isStopped())
          .map(Neighbour::describe)
          .findFirst()
          .orElse("its peers");
    }
    String absent = absent(waiting, work.seq);
    return absent.isEmpty() ? "its peers" + otherGroup(waiting, work.seq) : absent;
  }

  /** Says which rank called a collective in a group of another size, if one did. */
  private String otherGroup(NcclRank waiting, long seq) {
    long size = waiting.ledger().groupSize(seq);
    for (Member other : ranks) {
      CudaLedger ledger = other.ledger;
      if (ledger.has(seq) && ledger.groupSize(seq) != size) {
        return ": "
            + inGroup(waiting, seq)
            + ", "
            + inGroup(other.self, seq)
            + "; NCCL needs the same groups on all ranks";
      }
    }
    return "";
  }

  private static String inGroup(NcclRank rank, long seq) {
    long size = rank.ledger().groupSize(seq);
    String what = size == 1 ? "called by itself" : "one of " + size + " collectives in a group";
    return "on rank " + rank.rank() + " it is " + what;
  }

  /** The last collective that all ranks here have called. */
  long reachedByAll(NcclRank waiting) {
    long last = waiting.ledger().collectives();
    for (Member other : ranks) {
      last = Math.min(last, other.ledger.collectives());
    }
    for (Member gone : departed) {
      last = Math.min(last, gone.ledger.collectives());
    }
    return last;
  }

  /** The ranks of this machine that have not called what {@code work} waits for. */
  List<Integer> absentRanks(NcclRank waiting, long seq) {
    Stream<Integer> here =
        ranks.stream()
            .filter(other -> other.rank() != waiting.rank() && other.ledger.collectives() < seq)
            .map(Member::rank);
    return Stream.concat(here, absentOthers(seq).map(Neighbour::rank)).sorted().toList();
  }

  private Stream<Neighbour> absentOthers(long seq) {
    return others().stream().filter(other -> other.collectives() < seq || other.isStopped());
  }

  /** Which ranks have not called a collective, in words; nothing if all are here and have. */
  String absent(NcclRank waiting, long seq) {
    StringBuilder text = new StringBuilder();
    for (Member other : ranks) {
      long last = other.ledger.collectives();
      if (other.rank() != waiting.rank() && last < seq) {
        text.append(text.isEmpty() ? "" : ", ");
        text.append(Wording.behind(other.rank(), last, other.ledger.describe(last)));
      }
    }
    absentOthers(seq)
        .forEach(other -> text.append(text.isEmpty() ? "" : ", ").append(other.describe()));
    int elsewhere = waiting.nranks() - ranks.size() - departed.size() - others().size();
    if (elsewhere > 0) {
      text.append(text.isEmpty() ? "" : ", and ").append("perhaps one of the ").append(elsewhere);
      text.append(" ranks of other processes");
    }
    return text.toString();
  }

  /** Why a rank waits in vain, as far as can be seen here; null if nothing is known. */
  @Nullable NcclException contradiction(NcclRank waiting) {
    MismatchException mismatch = mismatch(waiting);
    if (mismatch != null) {
      return mismatch;
    }
    NcclException gone = ofNeighbours(waiting);
    if (gone != null) {
      return gone;
    }
    for (Member other : ranks) {
      if (other.taskEnded.getAsBoolean()) {
        String operation = neverCalled(waiting, other);
        if (operation != null) {
          return ScheduledCommunicator.taskEnded(other.rank(), waiting.rank(), operation);
        }
      }
    }
    for (Member member : departed) {
      long last = member.ledger.collectives();
      if (last < waiting.ledger().collectives()) {
        return left(waiting, member.rank(), last);
      }
    }
    return null;
  }

  private static PeerFailedException left(NcclRank waiting, int peer, long last) {
    String operation = waiting.ledger().describe(last + 1) + " #" + (last + 1);
    return Wording.left(operation + " of communicator " + waiting.name(), peer, last);
  }

  private @Nullable NcclException ofNeighbours(NcclRank waiting) {
    Neighbours near = neighbours;
    if (near == null) {
      return null;
    }
    List<Neighbour> dead = near.dead();
    if (!dead.isEmpty()) {
      return Wording.died(
          dead.stream().map(Neighbour::rank).toList(),
          dead.stream().map(one -> waiting.wording().death(one.rank(), one.pid())).toList());
    }
    NcclException failure = near.failure(waiting.name());
    if (failure != null) {
      return failure;
    }
    Neighbour left = near.leftBefore(waiting.ledger().collectives());
    return left == null ? null : left(waiting, left.rank(), left.collectives());
  }

  /** What a rank called and another one has not, in words; null if there is nothing. */
  private static @Nullable String neverCalled(NcclRank waiting, Member other) {
    CudaLedger own = waiting.ledger();
    long next = other.ledger.collectives() + 1;
    if (next <= own.collectives()) {
      return own.describe(next) + " #" + next;
    }
    long received = other.ledger.sent().messages(waiting.rank());
    if (own.expected().messages(other.rank()) > received) {
      return "a recv from rank " + other.rank();
    }
    long sent = other.ledger.expected().messages(waiting.rank());
    return own.sent().messages(other.rank()) > sent ? "a send to rank " + other.rank() : null;
  }

  /** The first contradiction between a rank and its peers here; null if there is none yet. */
  @Nullable MismatchException mismatch(NcclRank waiting) {
    return Contradictions.find(waiting, ranks, departed);
  }

  /**
   * Notes that a rank joins.
   *
   * @throws InvalidUsageException if another rank of this process contradicts it
   */
  public synchronized void expect(int rank, int nranks) {
    if (expected != 0 && expected != nranks) {
      throw new InvalidUsageException(
          "rank " + rank + " says that there are " + nranks + " ranks, another rank " + expected,
          "pass the same nranks on all ranks");
    }
    if (!joining.add(rank)) {
      throw new InvalidUsageException(
          "rank " + rank + " of communicator " + number + " was taken before",
          "give each rank its own number, and each communicator a new unique id");
    }
    expected = nranks;
  }

  /** The ranks that have not joined in this process, in words. */
  synchronized String absent() {
    StringBuilder text = new StringBuilder();
    for (int rank = 0; rank < expected; rank++) {
      if (!joining.contains(rank)) {
        text.append(text.isEmpty() ? "" : ", ").append(rank);
      }
    }
    return text.isEmpty() ? "none" : text.toString();
  }
}

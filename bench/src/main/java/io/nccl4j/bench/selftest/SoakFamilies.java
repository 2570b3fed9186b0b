package io.nccl4j.bench.selftest;

import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * The communicators of one rank in one episode of the soak: the world, and what is split from it.
 * The rank's thread uses it; another one may abort them all.
 */
final class SoakFamilies {
  /**
   * A communicator of this rank.
   *
   * @param ranks of the world, in its order
   */
  record Member(Communicator communicator, List<Integer> ranks) {}

  private final int rank;
  private final SoakProcess process;
  private final SoakOutcome outcome;
  private final List<@Nullable Member> members = new ArrayList<>();

  /** Without communicators. */
  SoakFamilies(int rank, SoakProcess process, SoakOutcome outcome) {
    this.rank = rank;
    this.process = process;
    this.outcome = outcome;
  }

  /** This rank's communicator of a family; null if it has none, or none any more. */
  @Nullable Member get(int family) {
    return members.get(family);
  }

  /** Those that are open. Any thread. */
  List<Member> open() {
    List<Member> open = new ArrayList<>();
    synchronized (members) {
      for (Member member : members) {
        if (member != null) {
          open.add(member);
        }
      }
    }
    return open;
  }

  /** Adds the next family. */
  void add(@Nullable Member member) {
    synchronized (members) {
      members.add(member);
    }
  }

  void close(int family) {
    Member member = members.get(family);
    if (member != null) {
      synchronized (members) {
        members.set(family, null);
      }
      outcome.close("communicator", member.communicator);
    }
  }

  void split(SoakEpisode.Split split) {
    Member parent = members.get(split.parent());
    Member child = null;
    if (parent != null) {
      int color = split.colors().get(rank);
      Communicator made;
      try {
        made = parent.communicator.split(color, split.keys().get(rank));
      } catch (NcclException e) {
        outcome.failed(e, parent.ranks);
        return;
      }
      child = made == null ? null : new Member(process.hook(made), ranks(split, parent, color));
      check(split, color, child);
    }
    add(child);
  }

  private static List<Integer> ranks(SoakEpisode.Split split, Member parent, int color) {
    List<Integer> ranks = new ArrayList<>(parent.ranks);
    ranks.removeIf(r -> split.colors().get(r) != color);
    // Stable: of equal keys the lower rank of the parent comes first.
    ranks.sort(Comparator.comparing(r -> split.keys().get(r)));
    return List.copyOf(ranks);
  }

  private void check(SoakEpisode.Split split, int color, @Nullable Member child) {
    if ((child == null) != (color == Communicator.NO_COLOR)) {
      outcome.problem(split + " gives color " + color + " " + child, null);
    } else if (child != null
        && (child.communicator.nranks() != child.ranks.size()
            || child.communicator.rank() != child.ranks.indexOf(rank))) {
      outcome.problem(
          split + " gives rank " + child.communicator.rank() + " of " + child.ranks, null);
    }
  }
}

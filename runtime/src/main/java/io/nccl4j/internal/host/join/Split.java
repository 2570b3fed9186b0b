package io.nccl4j.internal.host.join;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.life.Health;
import io.nccl4j.internal.host.life.LocalPart;
import io.nccl4j.internal.host.memory.HostMemory;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.schedule.GroupScope;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.MemoryBook;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.function.Function;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Makes communicators out of a part of another's ranks. No new connection is needed: the first rank
 * of each new communicator puts its control block into its heap, which the others have mapped
 * already.
 *
 * <p>All ranks divide or none does. They exchange twice, and a rank that cannot go on says so
 * instead: first by what it was asked for, then by the memory it needs. What follows the second
 * exchange cannot be refused.
 *
 * @param <W> the works
 */
public final class Split<W extends Work> {
  private final Communicator parent;
  private final Health health;
  private final LocalPart part;
  private final MemoryBook.Account account;
  private final Supplier<W> works;
  private final Agreement agreement;
  private final @Nullable Outside outside;

  /** Longs of an address, and its length. */
  private static final int ADDRESS_LONGS = 1 + Outside.ADDRESS_BYTES / Long.BYTES;

  /**
   * A split to come.
   *
   * @param health of the parent's rank
   * @param outside the way to the parent's ranks on other hosts; null if there are none
   * @param account has a control block until there is a communicator
   * @param works makes one
   */
  public Split(
      Communicator parent,
      Health health,
      @Nullable Outside outside,
      MemoryBook.Account account,
      Supplier<W> works) {
    this.parent = parent;
    this.health = health;
    this.part = health.part();
    this.outside = outside;
    this.account = account;
    this.works = works;
    agreement = new Agreement(parent, health, "split");
  }

  /**
   * As {@link Communicator#split}.
   *
   * @param attach makes the child's rank
   */
  public <C> @Nullable C run(
      int color, int key, @Nullable CommunicatorConfig config, Function<Place<W>, C> attach) {
    long start = System.nanoTime();
    NcclException refusal = refusal(color, config);
    Supplier<@Nullable C> split =
        () -> {
          health.activity().splits().incrementAndGet();
          try {
            long[] answers = agreement.reach(refusal, color, key);
            CommunicatorConfig given = config == null ? parent.config() : config;
            return color == Communicator.NO_COLOR
                ? stayOut()
                : attach.apply(divide(color, given, answers, start));
          } finally {
            health.activity().splits().decrementAndGet();
            health.becomeQuietIfIdle();
          }
        };
    return GroupScope.isOpen() ? GroupScope.suspended(split) : split.get();
  }

  /** What only this rank can know is wrong. */
  private @Nullable NcclException refusal(int color, @Nullable CommunicatorConfig config) {
    if (config == null) {
      return new InvalidArgumentException(
          "split: the config is null", "pass a configuration, or leave it out");
    }
    if (GroupScope.isOpen()) {
      return new InvalidUsageException(
          "split: a group is open on this thread", "launch or close the group first");
    }
    if (health.activity().isBusy()) {
      return new InvalidUsageException(
          "split: operations of communicator " + parent.name() + " are unfinished",
          "synchronize their streams first");
    }
    if (color < 0 && color != Communicator.NO_COLOR) {
      return new InvalidArgumentException(
          "split: the color is " + color, "use 0 or more, or Communicator.NO_COLOR");
    }
    try {
      // What the largest child would take decides.
      int nranks = parent.nranks();
      Tuning.require(config, nranks, outside != null);
      HostMemory.require(parent.device(), nranks, part.spansProcesses() ? 1 : nranks, config);
      return null;
    } catch (NcclException e) {
      return e;
    }
  }

  private <C> @Nullable C stayOut() {
    long[] ignored = agreement.reach(null, values(-1, null));
    return null;
  }

  private Place<W> divide(int color, CommunicatorConfig config, long[] answers, long start) {
    int[] members =
        IntStream.range(0, parent.nranks())
            .filter(k -> answers[2 * k] == color)
            .boxed()
            .sorted((a, b) -> Long.compare(answers[2 * a + 1], answers[2 * b + 1]))
            .mapToInt(Integer::intValue)
            .toArray();
    int rank =
        IntStream.range(0, members.length)
            .filter(i -> members[i] == parent.rank())
            .findFirst()
            .orElseThrow();
    int[] processOf = IntStream.of(members).map(part::processOf).toArray();
    int[] here = IntStream.range(0, members.length).filter(i -> part.isHere(members[i])).toArray();
    int maker = here[0];
    Device device = parent.device();
    String name = config.name() == null ? parent.name() + "/" + color : config.name();
    boolean spans = IntStream.of(here).map(i -> processOf[i]).distinct().count() > 1;
    NcclException refusal = null;
    Provisions<W> provisions = null;
    long handle = -1;
    LocalPart own = null;
    Outside.Offer offer = null;
    try {
      if (outside != null && here.length < members.length) {
        offer = outside.offer();
      }
      provisions = Provisions.take(rank, device, config, name, spans, works);
      if (rank == maker) {
        handle = ProcessMemory.self().controlBlocks().create(account, members.length);
        own = part(handle, members[maker], processOf, rank);
      }
    } catch (NcclException e) {
      refusal = e;
    } catch (RuntimeException | Error e) {
      refusal =
          new SystemErrorException("split: rank " + parent.rank() + " failed: " + e, "")
              .causedBy(e);
    }
    LocalPart child;
    Outside others = null;
    try {
      long[] all = agreement.reach(refusal, values(handle, offer));
      int width = all.length / parent.nranks();
      long found = all[members[maker] * width];
      child = own != null ? own : part(found, members[maker], processOf, rank);
      if (offer != null) {
        others = offer.take(rank, members, addresses(all, width, members));
      }
    } catch (RuntimeException | Error e) {
      if (offer != null) {
        offer.giveBack();
      }
      if (own != null) {
        giveUp(own);
      }
      if (provisions != null) {
        provisions.giveBack();
      }
      throw e;
    }
    child.nobodyComesOnce(health::peersAreQuiet);
    return new Place<>(
        rank,
        device,
        child,
        config,
        name,
        Objects.requireNonNull(provisions),
        start,
        k -> whyNever(members[k]),
        others);
  }

  /** What a rank says of its part in the child: where its control block is, and its port. */
  private long[] values(long handle, Outside.@Nullable Offer offer) {
    long[] values = new long[outside == null ? 1 : 1 + ADDRESS_LONGS];
    values[0] = handle;
    if (offer != null) {
      byte[] address = offer.address();
      values[1] = address.length;
      ByteBuffer bytes = ByteBuffer.allocate(Outside.ADDRESS_BYTES).put(address);
      bytes.clear().asLongBuffer().get(values, 2, ADDRESS_LONGS - 1);
    }
    return values;
  }

  private static List<byte[]> addresses(long[] all, int width, int[] members) {
    List<byte[]> addresses = new ArrayList<>();
    for (int k : members) {
      ByteBuffer bytes = ByteBuffer.allocate(Outside.ADDRESS_BYTES);
      bytes.asLongBuffer().put(all, k * width + 2, ADDRESS_LONGS - 1);
      byte[] address = new byte[(int) all[k * width + 1]];
      bytes.get(address);
      addresses.add(address);
    }
    return addresses;
  }

  /**
   * Why a rank of the parent does not come: the parent failed in the middle of the last exchange,
   * and that rank, which is quiet, has left this call.
   */
  private @Nullable NcclException whyNever(int parentRank) {
    return health.isQuiet(parentRank) ? parentFailure(parentRank) : null;
  }

  private @Nullable NcclException parentFailure(int parentRank) {
    health.look();
    NcclException failure = health.failure();
    return failure == null
        ? null
        : Failures.again(
            failure,
            "split: rank "
                + parentRank
                + " of communicator "
                + parent.name()
                + " takes no part: "
                + failure.problem(),
            failure.remedy(),
            failure.failedRanks());
  }

  /**
   * The part of a child here, made by its first local rank.
   *
   * @throws NcclException if those who came before have given the child up
   */
  private LocalPart part(long handle, int leader, int[] processOf, int rank) {
    LocalPart child = Child.part(part, handle, leader, processOf, rank);
    if (child == null) {
      throw givenUp(leader);
    }
    return child;
  }

  private NcclException givenUp(int leader) {
    NcclException failure = parentFailure(leader);
    return failure != null
        ? failure
        : new PeerFailedException(
            leader,
            "split: rank " + leader + " of communicator " + parent.name() + " gave up waiting",
            "see that rank's message");
  }

  /**
   * A refusal all ranks have read, and none comes. Otherwise the exchange has ended in the middle,
   * by a death for example: some may be in the new communicator, and others never come to it. Its
   * memory is kept until all have left this call.
   */
  private void giveUp(LocalPart own) {
    LocalPart.lost(own.control(), own.here()[0]);
    own.nobodyComesOnce(agreement.isRefused() ? () -> true : health::peersAreQuiet);
    own.leave();
  }
}

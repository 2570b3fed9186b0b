package io.nccl4j.bench.run;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Provider;
import io.nccl4j.UniqueId;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.options.Grouping;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.options.TurnSeat;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DeviceKernel;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.result.MemoryPhases;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import java.time.Clock;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Runs a program on this process's ranks. One instance is one run.
 *
 * <p>A thread drives each {@code gpus} ranks; the caller waits. If a rank fails, the communicators
 * of the process are aborted, all threads end, and the first failure is thrown.
 */
public final class Bench {
  private static final long LAST_WORDS_MILLIS = 5_000;

  private final Program program;
  private final Options options;
  private final RankRange range;
  private final RunListener listener;
  private final Clock clock;
  private final Backend backend;
  private final ThreadBarrier barrier;
  private final ThreadCrew.Meeting meeting;

  // Guarded by this.
  private final List<Communicator> joined = new ArrayList<>();
  private @Nullable Throwable failure;
  private @Nullable RunResult result;

  // Set before there are threads.
  private MemoryPhases.@Nullable Meter meter;
  private @Nullable UniqueId id;
  private @Nullable TurnFile turns;

  /**
   * A run.
   *
   * @param range this process's ranks
   * @param listener hears of the results if this process has rank 0
   * @param clock for the time stamps, not for the timing
   * @throws InvalidArgumentException if options and range contradict each other
   */
  public Bench(
      Program program, Options options, RankRange range, RunListener listener, Clock clock) {
    range.check(options);
    program.check(options, range.nranks());
    this.program = program;
    this.options = options;
    this.range = range;
    this.listener = listener;
    this.clock = clock;
    this.backend = Device.get(options.backend(), 0).backend();
    if (!options.setup().device().isNccl() && backend == Backend.HOST) {
      throw new InvalidArgumentException(
          "device implementations are kernels of GPUs, the ranks run on the host",
          "use --backend cuda, or omit -D");
    }
    this.barrier = new ThreadBarrier(options.threads());
    this.meeting = new ThreadCrew.Meeting(barrier, options.threads());
  }

  /**
   * Runs to the end.
   *
   * @throws io.nccl4j.NcclException if a rank failed
   * @throws InterruptedException if the caller was interrupted; the ranks are aborted then
   */
  public RunResult run() throws InterruptedException {
    TurnSeat seat = options.method().seat();
    try (TurnFile opened = seat == null ? null : TurnFile.open(seat.file())) {
      turns = opened;
      return runThreads();
    }
  }

  private RunResult runThreads() throws InterruptedException {
    meter = options.method().memory() && range.reports() ? meter() : null;
    boolean alone = range.id() == null;
    id = alone && options.setup().parallelInit() ? UniqueId.create(backend) : range.id();
    List<Communicator> local =
        options.setup().parallelInit()
            ? List.of()
            : alone ? initAll() : joinRanks(0, options.localRanks());
    List<Thread> threads = new ArrayList<>();
    for (int t = 0; t < options.threads(); t++) {
      int thread = t;
      threads.add(
          Thread.ofPlatform().daemon().name("bench-" + t).start(() -> runThread(thread, local)));
    }
    try {
      for (Thread thread : threads) {
        join(thread);
      }
    } catch (InterruptedException e) {
      fail(e);
      throw e;
    }
    return outcome();
  }

  private synchronized RunResult outcome() {
    switch (failure) {
      case null -> {}
      case RuntimeException e -> throw e;
      case Error e -> throw e;
      default -> throw new IllegalStateException(failure);
    }
    if (result == null) {
      throw new IllegalStateException("no thread finished");
    }
    return result;
  }

  // A thread that waits for ranks that never come gives up by its own deadline, long after the
  // failure: once there is one, it gets a moment to clean up and is left behind.
  private void join(Thread thread) throws InterruptedException {
    long failedAt = 0;
    while (!thread.join(Duration.ofMillis(20))) {
      if (failedAt == 0 && failed()) {
        failedAt = System.nanoTime();
      }
      if (failedAt != 0 && System.nanoTime() - failedAt > LAST_WORDS_MILLIS * 1_000_000) {
        return;
      }
    }
  }

  private synchronized boolean failed() {
    return failure != null;
  }

  // The thread that reports knows more of the machine than the others.
  private synchronized void finished(RunResult finished, boolean reports) {
    if (result == null || reports) {
      result = finished;
    }
  }

  private void fail(Throwable cause) {
    List<Communicator> abort;
    synchronized (this) {
      if (failure == null) {
        failure = cause;
      } else if (!haveOneCause(cause, failure)) {
        failure.addSuppressed(cause);
      }
      abort = List.copyOf(joined);
    }
    barrier.breakBecauseOf(cause);
    abort.forEach(Communicator::abort);
  }

  // Every thread that meets a failure has an exception of its own, with the first one as cause.
  private static boolean haveOneCause(Throwable one, Throwable other) {
    for (Throwable e = one; e != null; e = e.getCause()) {
      for (Throwable f = other; f != null; f = f.getCause()) {
        if (e == f) {
          return true;
        }
      }
    }
    return false;
  }

  private List<Device> devices() {
    return IntStream.range(0, options.localRanks()).mapToObj(this::device).toList();
  }

  private Device device(int local) {
    return range.device(backend, local, options.setup());
  }

  private MemoryPhases.Meter meter() {
    return new MemoryPhases.Meter(devices().stream().distinct().toList());
  }

  private List<Communicator> initAll() {
    Communicators all = Communicator.initAll(devices(), options.setup().config());
    List<Communicator> local = new ArrayList<>();
    all.forEach(local::add);
    joined(local);
    return local;
  }

  private synchronized void joined(List<Communicator> communicators) {
    joined.addAll(communicators);
  }

  /**
   * One thread per processor is what polling ranks want; where there are more threads, the system
   * divides best.
   */
  private void bind(int thread) {
    int number = range.firstRank() / options.gpus() + thread;
    if (range.nranks() / options.gpus() <= LineProbe.PROCESSORS) {
      Device device =
          backend == Backend.HOST ? Device.get(backend, number) : device(thread * options.gpus());
      device.bindThread();
    }
  }

  private void runThread(int thread, List<Communicator> local) {
    bind(thread);
    try (RankSet ranks = ranks(thread, local)) {
      try {
        RunListener own = thread == 0 && range.reports() ? listener : null;
        if (range.id() == null) {
          finished(worker(ranks, new ThreadCrew(meeting, thread), own), own != null);
        } else {
          try (ProcessCrew crew = new ProcessCrew(ranks)) {
            finished(worker(ranks, crew, own), own != null);
          }
        }
      } catch (Throwable e) {
        // Before the ranks are closed, so that closing does not wait for what cannot come.
        fail(e);
      }
    } catch (Throwable e) {
      fail(e);
    }
  }

  private RunResult worker(RankSet ranks, Crew crew, @Nullable RunListener own) {
    return new Worker(program, options, ranks, crew, own, clock, turns(own != null))
        .run(Provider.get().version(), own == null ? null : meter);
  }

  private @Nullable Turns turns(boolean ends) {
    TurnSeat seat = options.method().seat();
    return turns == null || seat == null ? null : new Turns(turns, seat.side(), ends);
  }

  private RankSet ranks(int thread, List<Communicator> local) {
    int gpus = options.gpus();
    Setup setup = options.setup();
    List<Communicator> communicators =
        local.isEmpty()
            ? joinRanks(thread * gpus, gpus)
            : local.subList(thread * gpus, (thread + 1) * gpus);
    List<LocalRank> ranks = new ArrayList<>();
    List<LocalRank.Member> members = new ArrayList<>();
    try {
      members.addAll(members(communicators));
      boolean nullStream = setup.nullStream() && backend == Backend.CUDA;
      for (int i = 0; i < gpus; i++) {
        LocalRank.Member member = members.get(i);
        long capacity = capacity(member.group().nranks());
        int unaligned = options.method().unaligned();
        ranks.add(new LocalRank(i, member, capacity, unaligned, nullStream));
      }
      if (setup.registration() != Setup.Registration.NONE && backend == Backend.CUDA) {
        Together.call(ranks.stream().map(rank -> registering(rank, setup)).toList());
      }
      return new RankSet(ranks, timeout(setup));
    } catch (Throwable e) {
      fail(e);
      Closing.all(ranks);
      for (int i = ranks.size(); i < members.size(); i++) {
        Closing.all(members.get(i).communicators());
      }
      if (members.isEmpty()) {
        Closing.all(communicators);
      }
      throw e;
    }
  }

  private Supplier<Boolean> registering(LocalRank rank, Setup setup) {
    return () -> {
      rank.register(setup.registration());
      if (!setup.device().isNccl()) {
        rank.useKernels(DeviceKernel.of(program, options), setup.device().ctas());
      }
      return true;
    };
  }

  /** Operations have deadlines of their own, kernels have none. */
  private static @Nullable Duration timeout(Setup setup) {
    if (setup.timeoutSeconds() > 0) {
      return Duration.ofSeconds(setup.timeoutSeconds());
    }
    return setup.device().isNccl() ? null : setup.config().operationTimeout();
  }

  /** The communicators that operations run on: all ranks', or those of the groups. */
  private List<LocalRank.Member> members(List<Communicator> communicators) {
    Grouping grouping = options.setup().grouping();
    if (grouping == null) {
      return communicators.stream().map(one -> new LocalRank.Member(one, one, 0)).toList();
    }
    List<LocalRank.Member> members =
        Together.call(
            communicators.stream()
                .map(world -> (Supplier<LocalRank.Member>) () -> member(world, grouping))
                .toList());
    joined(members.stream().map(LocalRank.Member::group).toList());
    return members;
  }

  private LocalRank.Member member(Communicator world, Grouping grouping) {
    int color = grouping.color(world.rank(), options.localRanks(), world.nranks());
    Communicator group = world.split(color, world.rank());
    return new LocalRank.Member(world, Objects.requireNonNull(group), color);
  }

  private List<Communicator> joinRanks(int firstLocal, int count) {
    CommunicatorConfig config = options.setup().config();
    UniqueId shared = Objects.requireNonNull(id);
    List<CompletableFuture<Communicator>> joining = new ArrayList<>();
    for (int i = 0; i < count; i++) {
      int local = firstLocal + i;
      joining.add(
          Communicator.initRankAsync(
              device(local), range.nranks(), shared, range.firstRank() + local, config));
    }
    try {
      List<Communicator> communicators = joining.stream().map(CompletableFuture::join).toList();
      joined(communicators);
      return communicators;
    } catch (CompletionException e) {
      for (CompletableFuture<Communicator> future : joining) {
        // A rank that still comes closes itself when nobody waits for it any more.
        if (!future.cancel(false) && !future.isCompletedExceptionally()) {
          future.join().close();
        }
      }
      throw e.getCause() instanceof RuntimeException cause ? cause : e;
    }
  }

  /** Bytes of the largest case's buffers, whatever the element type rounds it to. */
  private long capacity(int nranks) {
    return options.types().stream()
        .mapToLong(
            type ->
                Case.of(
                        program,
                        type,
                        options.ops().getFirst(),
                        -1,
                        nranks,
                        options.sweep().maxBytes())
                    .size())
        .max()
        .orElseThrow();
  }
}

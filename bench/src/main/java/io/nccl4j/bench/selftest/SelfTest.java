package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.program.Blocks;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.Collective;
import io.nccl4j.bench.program.Shape;
import io.nccl4j.bench.run.LocalRank;
import io.nccl4j.bench.run.ProcessCrew;
import io.nccl4j.bench.run.RankSet;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import java.util.stream.IntStream;

/**
 * Runs every operation with every type and reduction on the machine at hand, and compares every
 * element of every buffer with what must be there. What is received is overwritten before with what
 * no check accepts; what is sent, and what lies behind the received elements, must not change.
 *
 * <p>One instance is what one thread does for the ranks it drives: all ranks go through the same
 * cases in the same order.
 */
public final class SelfTest {
  private static final Duration DEADLINE = Duration.ofSeconds(60);
  private static final int LARGE_BYTES = 1 << 20;
  private static final int SOME_BYTES = 64;
  private static final long NANOS = 1_000_000_000;

  /** What the ranks are. */
  public enum Layout {
    /** A thread each. */
    THREADS("threads"),
    /** One thread drives all. */
    ONE_THREAD("one-thread"),
    /** A process each. */
    PROCESSES("processes");

    private final String label;

    Layout(String label) {
      this.label = label;
    }

    /** Its name for people. */
    public String label() {
      return label;
    }

    /**
     * The layout with this name.
     *
     * @throws InvalidArgumentException if there is none
     */
    public static Layout ofLabel(String label) {
      return Arrays.stream(values())
          .filter(layout -> layout.label.equals(label))
          .findFirst()
          .orElseThrow(
              () ->
                  new InvalidArgumentException(
                      "unknown layout '" + label + "'", "use threads, one-thread or processes"));
    }
  }

  /**
   * What came of an operation.
   *
   * @param operation its name
   * @param cases how many different calls were made and checked
   * @param refused of them, those that the backend refused as documented
   * @param wrong elements that were not as they must be, of all ranks
   * @param seconds time of all that
   */
  public record Row(String operation, long cases, long refused, long wrong, double seconds) {
    /** As one line of text. */
    public String format() {
      return cases
          + "\t"
          + refused
          + "\t"
          + wrong
          + "\t"
          + String.format(Locale.ROOT, "%.3f", seconds)
          + "\t"
          + operation;
    }

    /** What {@link #format} made. */
    public static Row parse(String line) {
      String[] parts = line.split("\t", 5);
      return new Row(
          parts[4],
          Long.parseLong(parts[0]),
          Long.parseLong(parts[1]),
          Long.parseLong(parts[2]),
          Double.parseDouble(parts[3]));
    }
  }

  /** Hears of the progress; of threads only rank 0's. */
  public interface Listener {
    /** An operation is done. */
    void done(Row row);

    /** Elements of a case are wrong on the ranks of one thread. */
    void wrong(String oneCase, long elements);

    /** A case threw. */
    void failed(String oneCase, String message);
  }

  /** How an operation is started. */
  private enum Start {
    PLAIN,
    GROUP,
    GRAPH
  }

  /** Something that is checked with all ranks of a thread; gives the number of wrong elements. */
  interface Scene {
    long run(RankSet ranks);
  }

  private final RankSet ranks;
  private final boolean quick;
  private final Listener listener;
  private final int nranks;
  private final Backend backend;
  private final Function<String, TestData> data;
  private final List<Row> rows = new ArrayList<>();
  private long index;

  private SelfTest(
      RankSet ranks, boolean quick, Listener listener, Function<String, TestData> data) {
    this.ranks = ranks;
    this.quick = quick;
    this.listener = listener;
    this.nranks = ranks.first().communicator().nranks();
    this.backend = ranks.first().device().backend();
    this.data = data;
  }

  /** The configuration with which ranks join: what hangs is noticed soon. */
  public static CommunicatorConfig config() {
    return CommunicatorConfig.builder().name("selftest").operationTimeout(DEADLINE).build();
  }

  /** The device of a rank; ranks share GPUs where there are fewer. */
  public static Device device(Backend backend, int rank) {
    return Device.get(backend, backend == Backend.CUDA ? rank % Device.all(backend).size() : rank);
  }

  /**
   * Runs everything with ranks of this process.
   *
   * @param layout threads or one thread
   * @throws Exception what a rank threw
   */
  public static List<Row> inProcess(
      Layout layout, Backend backend, int nranks, boolean quick, Listener listener)
      throws Exception {
    List<Device> devices =
        IntStream.range(0, nranks).mapToObj(rank -> device(backend, rank)).toList();
    Function<String, TestData> data = cache(nranks, backend);
    List<List<Row>> all = new ArrayList<>();
    try (Communicators communicators = Communicator.initAll(devices, config())) {
      if (layout == Layout.ONE_THREAD) {
        List<LocalRank> ranks = new ArrayList<>();
        for (Communicator one : communicators) {
          ranks.add(new LocalRank(ranks.size(), one, capacity(nranks)));
        }
        try (RankSet set = new RankSet(ranks)) {
          all.add(new SelfTest(set, quick, listener, data).run());
        }
      } else {
        communicators.run(
            one -> {
              List<Row> own = onRank(one, quick, listener, data);
              synchronized (all) {
                all.add(one.rank() == 0 ? 0 : all.size(), own);
              }
            });
      }
    }
    List<Row> sums = new ArrayList<>();
    for (int i = 0; i < all.getFirst().size(); i++) {
      int row = i;
      long wrong = all.stream().mapToLong(rows -> rows.get(row).wrong).sum();
      sums.add(withWrong(all.getFirst().get(i), wrong));
    }
    return sums;
  }

  /**
   * Runs everything as one rank of several processes; all ranks call it.
   *
   * @return on each rank the wrong elements of all
   */
  public static List<Row> onRank(Communicator communicator, boolean quick, Listener listener) {
    Function<String, TestData> data = cache(communicator.nranks(), communicator.device().backend());
    try (RankSet ranks =
        new RankSet(List.of(new LocalRank(0, communicator, capacity(communicator.nranks()))))) {
      List<Row> own = new SelfTest(ranks, quick, listener, data).run();
      try (ProcessCrew crew = new ProcessCrew(ranks)) {
        return own.stream().map(row -> withWrong(row, (long) crew.sum(row.wrong))).toList();
      }
    }
  }

  private static List<Row> onRank(
      Communicator communicator,
      boolean quick,
      Listener listener,
      Function<String, TestData> data) {
    try (RankSet ranks =
        new RankSet(List.of(new LocalRank(0, communicator, capacity(communicator.nranks()))))) {
      return new SelfTest(ranks, quick, listener, data).run();
    }
  }

  private static Row withWrong(Row row, long wrong) {
    return new Row(row.operation, row.cases, row.refused, wrong, row.seconds);
  }

  /** The inputs and results of each type and reduction, made once. */
  private static Function<String, TestData> cache(int nranks, Backend backend) {
    ConcurrentHashMap<String, TestData> made = new ConcurrentHashMap<>();
    return key ->
        made.computeIfAbsent(
            key,
            k -> {
              String[] names = k.split(" ");
              return new TestData(
                  DataType.valueOf(names[0]), ReduceOp.Kind.valueOf(names[1]), nranks, backend);
            });
  }

  /** Room for the largest case, twice. */
  private static long capacity(int nranks) {
    return 2L * (LARGE_BYTES + 8L * (nranks + 1) * (SelfTestOperation.GUARD + 4 * SOME_BYTES))
        + 8L * nranks * 2 * (4100 + SOME_BYTES);
  }

  private List<Row> run() {
    for (Collective collective : Collective.values()) {
      operation(new SelfTestOperation(collective));
    }
    scene("graph: update, replay", set -> SelfTestScenes.graphs(set, quick ? 2 : 20));
    scene("group of several", SelfTestScenes::groups);
    scene("events, copies, fills", SelfTestScenes::events);
    scene("split", SelfTestScenes::split);
    scene("abort", SelfTestScenes::abort);
    return rows;
  }

  private void scene(String name, Scene scene) {
    long start = System.nanoTime();
    long wrong;
    try {
      wrong = scene.run(ranks);
    } catch (RuntimeException e) {
      listener.failed(name, String.valueOf(e.getMessage()));
      throw e;
    }
    if (wrong > 0) {
      listener.wrong(name, wrong);
    }
    add(name, 1, 0, wrong, start);
  }

  private void add(String name, long cases, long refused, long wrong, long start) {
    Row row = new Row(name, cases, refused, wrong, (System.nanoTime() - start) / (double) NANOS);
    rows.add(row);
    if (ranks.first().rank() == 0) {
      listener.done(row);
    }
  }

  private void operation(SelfTestOperation operation) {
    long start = System.nanoTime();
    long cases = 0;
    long refused = 0;
    long wrong = 0;
    List<ReduceOp.Kind> kinds =
        operation.reduces() ? List.of(ReduceOp.Kind.values()) : List.of(ReduceOp.Kind.SUM);
    for (DataType type : DataType.values()) {
      for (ReduceOp.Kind kind : kinds) {
        boolean large =
            (type.ordinal() + kind.ordinal() + operation.collective().ordinal()) % 4 == 0;
        for (long count : counts(operation, type, large)) {
          // The short test takes turns.
          int places = operation.inPlace() && !quick ? 2 : 1;
          int first = operation.inPlace() && quick ? (int) (index % 2) : 0;
          for (int place = first; place < first + places; place++) {
            cases++;
            long result = oneCase(operation, type, kind, count, place == 1);
            if (result < 0) {
              refused++;
            } else {
              wrong += result;
            }
          }
        }
      }
      if (operation.collective().blocks() == Blocks.NONE) {
        break;
      }
    }
    add(operation.collective().label(), cases, refused, wrong, start);
  }

  private long[] counts(SelfTestOperation operation, DataType type, boolean large) {
    if (operation.collective().blocks() == Blocks.NONE) {
      return new long[] {0, 0, 0};
    }
    long most = large ? LARGE_BYTES / type.byteSize() / nranks + 3 : 4099;
    return quick ? new long[] {large ? 4099 : 37} : new long[] {1, 37, most};
  }

  /** Runs one case; the number of wrong elements, or −1 if it was refused as documented. */
  private long oneCase(
      SelfTestOperation operation, DataType type, ReduceOp.Kind kind, long count, boolean inPlace) {
    long seed = ++index;
    int root = operation.rooted() ? (int) (seed % nranks) : -1;
    Start how = Start.values()[(int) (seed / 2 % Start.values().length)];
    Shape shape = operation.shape(count, type.byteSize(), nranks);
    Case size = new Case(operation, type, kind, root, nranks, shape);
    String text =
        operation
            + (operation.reduces() ? " " + kind.label() : "")
            + " of "
            + count
            + " "
            + type.label()
            + (root < 0 ? "" : ", root " + root)
            + (inPlace ? ", in place" : "")
            + (how == Start.PLAIN ? "" : ", as a " + how.name().toLowerCase(Locale.ROOT))
            + ", "
            + nranks
            + " ranks";
    try {
      long wrong = run(operation, size, inPlace, seed, how);
      if (wrong > 0) {
        listener.wrong(text, wrong);
      }
      return wrong;
    } catch (InvalidArgumentException e) {
      if (backend == Backend.CUDA && isFloat8(type)) {
        // Documented: the library or the GPU may have none, and one rank cannot scale them.
        return -1;
      }
      listener.failed(text, String.valueOf(e.getMessage()));
      throw e;
    } catch (RuntimeException e) {
      listener.failed(text, String.valueOf(e.getMessage()));
      throw e;
    }
  }

  private static boolean isFloat8(DataType type) {
    return type == DataType.FLOAT8_E4M3 || type == DataType.FLOAT8_E5M2;
  }

  private long run(SelfTestOperation operation, Case size, boolean inPlace, long seed, Start how) {
    TestData inputs = data.apply(size.type().name() + " " + size.op().name());
    Contents contents = new Contents(size.type());
    ranks.prepare(size, inPlace, 1);
    for (LocalRank rank : ranks) {
      contents.poison(rank.recv(0), expected(operation, size, inputs, rank.rank(), inPlace, seed));
      contents.write(rank.send(0), operation.sent(size, inputs, rank.rank(), seed));
    }
    start(how);
    long wrong = 0;
    for (LocalRank rank : ranks) {
      wrong +=
          contents.countWrong(
              rank.recv(0), expected(operation, size, inputs, rank.rank(), inPlace, seed));
      if (!inPlace) {
        wrong += contents.countWrong(rank.send(0), operation.sent(size, inputs, rank.rank(), seed));
      }
    }
    return wrong;
  }

  /** What a rank must have received, and what must lie behind it. */
  static List<Block> expected(
      SelfTestOperation operation,
      Case size,
      TestData inputs,
      int rank,
      boolean inPlace,
      long seed) {
    List<Block> blocks = operation.expected(size, inputs, rank, seed);
    if (inPlace) {
      return blocks;
    }
    List<Block> guarded = new ArrayList<>(blocks);
    guarded.add(SelfTestOperation.guard(size, seed));
    return guarded;
  }

  private void start(Start how) {
    switch (how) {
      case PLAIN -> ranks.launch(0);
      case GROUP -> Group.run(() -> ranks.launch(0));
      case GRAPH -> ranks.captured(() -> ranks.launch(0), 1);
    }
    ranks.synchronize();
  }

  /** Elements of a buffer that differ from a value. */
  static long differing(DeviceBuffer buffer, int value) {
    return Arrays.stream(buffer.toInts()).filter(element -> element != value).count();
  }
}

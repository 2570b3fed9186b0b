package io.nccl4j.internal.host.engine;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.host.engine.TuningTable.Row;
import io.nccl4j.internal.host.memory.ProcessMemory;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Shape;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * What the {@link TuningTable} says for one communicator, as limits that the engines compare a size
 * with: the same on all ranks, and no more than an array to look into.
 *
 * <p>An algorithm or a protocol may be forced by the settings {@code algo} and {@code proto}. Rows
 * of others then do not count; an operation that has none left is refused when it is called. A
 * barrier has no data and does what it always does, and memory that others cannot read is staged
 * whatever is asked for.
 */
public final class Tuning {
  private static final Algorithm[] ALGORITHMS = Algorithm.values();
  private static final Protocol[] PROTOCOLS = Protocol.values();

  private final int nranks;
  private final boolean overHosts;
  private final @Nullable Algorithm algorithm;
  private final @Nullable Protocol protocol;

  /** For each operation up to how many bytes of payload LL is used; −1 for never. */
  private final long[] inline = new long[Operation.count()];

  /** For each operation from how many bytes of payload on LL goes by shares. */
  private final long[] shared = new long[Operation.count()];

  /** For each operation from how many bytes of a part on STREAM is used; without a limit MAX. */
  private final long[] streamed = new long[Operation.count()];

  /** For each operation up to how many bytes it can be done as it is forced to; −1 for never. */
  private final long[] most = new long[Operation.count()];

  private Tuning(
      int nranks, boolean overHosts, @Nullable Algorithm algorithm, @Nullable Protocol protocol) {
    this.nranks = nranks;
    this.overHosts = overHosts;
    this.algorithm = algorithm;
    this.protocol = protocol;
    for (int i = 0; i < inline.length; i++) {
      Operation operation = Operation.of(i);
      List<Row> rows = rows(operation);
      List<Row> wanted = rows.stream().filter(row -> isWanted(row, operation)).toList();
      boolean free = !isForced() || wanted.isEmpty() || !TuningTable.moves(operation);
      List<Row> used = free ? rows : wanted;
      most[i] = wanted.stream().mapToLong(Row::most).max().orElse(-1);
      inline[i] = -1;
      shared[i] = Long.MAX_VALUE;
      streamed[i] = Long.MAX_VALUE;
      for (Row row : used) {
        if (row.protocol() == Protocol.LL) {
          inline[i] = row.most();
          if (row.algorithm(operation) == Algorithm.SHARE) {
            shared[i] = algorithm == Algorithm.SHARE ? 1 : row.least();
          }
        } else if (row.protocol() == Protocol.STREAM && !free && protocol == Protocol.STREAM) {
          streamed[i] = 0;
        } else if (row.protocol() == Protocol.STREAM) {
          streamed[i] = row.least();
        }
      }
    }
  }

  /**
   * That of a communicator.
   *
   * @param overHosts whether some of its ranks are on other hosts
   * @throws InvalidArgumentException if the settings name what there is not
   * @throws InvalidUsageException if they force what ranks of several hosts do not have
   */
  public static Tuning of(CommunicatorConfig config, int nranks, boolean overHosts) {
    Tuning tuning =
        new Tuning(
            nranks,
            overHosts,
            config
                .algorithm()
                .map(name -> named("algo", name, ALGORITHMS, Algorithm::label))
                .orElse(null),
            config
                .protocol()
                .map(name -> named("proto", name, PROTOCOLS, Protocol::label))
                .orElse(null));
    if (overHosts && tuning.protocol != null && tuning.protocol != Protocol.DIRECT) {
      throw new InvalidUsageException(
          "proto is " + tuning.protocol.label() + ", and the ranks are on several hosts",
          "use direct, or leave it out (NCCL4J_PROTO, --proto)");
    }
    return tuning;
  }

  /**
   * Refuses settings that cannot be, before anything is taken.
   *
   * @throws InvalidArgumentException as {@link #of}
   * @throws InvalidUsageException as {@link #of}, or if there is no memory to stage in
   */
  public static void require(CommunicatorConfig config, int nranks, boolean overHosts) {
    Tuning tuning = of(config, nranks, overHosts);
    if (tuning.isStaged() && !ProcessMemory.self().heap().isShareable()) {
      throw new InvalidUsageException(
          "proto is staged, and this process has no heap to stage in: "
              + ProcessMemory.self().heap().restriction(),
          "use ll, direct or stream, or leave it out (NCCL4J_PROTO, --proto)");
    }
  }

  /** Whether all that has data is to be staged, as far as the settings say. */
  public static boolean isStaged(CommunicatorConfig config) {
    return config.protocol().filter(Protocol.STAGED.label()::equals).isPresent();
  }

  private static <T> T named(String setting, String name, T[] all, Function<T, String> label) {
    for (T one : all) {
      if (label.apply(one).equals(name)) {
        return one;
      }
    }
    throw new InvalidArgumentException(
        setting + " is '" + name + "', which the host backend does not have",
        "use "
            + Arrays.stream(all).map(label).collect(Collectors.joining(", "))
            + ", or leave it out (NCCL4J_"
            + (setting.equals("algo") ? "ALGO" : "PROTO")
            + ", --"
            + setting
            + ")");
  }

  // ---- for the engines

  /** Up to how many bytes the data of an operation travels with its word; −1 if it never does. */
  long inline(Operation operation) {
    return inline[operation.number()];
  }

  /** Whether each rank makes a share of so many bytes that travel with their word. */
  boolean shares(Operation operation, long bytes) {
    return bytes >= shared[operation.number()];
  }

  /** Whether a share or block of so many bytes is written past the caches. */
  boolean streams(Operation operation, long bytes) {
    return bytes >= streamed[operation.number()];
  }

  /** Whether all memory is staged. */
  public boolean isStaged() {
    return protocol == Protocol.STAGED;
  }

  // ---- what is forced

  /** Whether the settings force something. */
  public boolean isForced() {
    return algorithm != null || protocol != null;
  }

  /** What ranks compare when they join; never 0. */
  public long word() {
    int first = algorithm == null ? 0 : 1 + algorithm.ordinal();
    int second = protocol == null ? 0 : 1 + protocol.ordinal();
    return 1L << 16 | first << 8 | second;
  }

  /** What another rank's word says, in words. */
  public static String describe(long word) {
    int first = (int) (word >>> 8 & 0xff);
    int second = (int) (word & 0xff);
    return "algo "
        + (first == 0 || first > ALGORITHMS.length ? "unset" : ALGORITHMS[first - 1].label())
        + ", proto "
        + (second == 0 || second > PROTOCOLS.length ? "unset" : PROTOCOLS[second - 1].label());
  }

  /**
   * Refuses an operation that cannot be done as it is forced to.
   *
   * @param count of its elements, as it is passed
   * @throws InvalidUsageException that says how it can be done
   */
  public void require(Operation operation, long count, int elementBytes) {
    if (!TuningTable.moves(operation)) {
      return;
    }
    long payload = count * elementBytes * (operation.sent() == Shape.EACH ? nranks : 1);
    long most = this.most[operation.number()];
    if (payload > most) {
      throw new InvalidUsageException(
          operation.label()
              + (most < 0 ? "" : " of " + payload + " B")
              + " cannot be done with "
              + describe(word()),
          "it has "
              + ways(operation)
              + ": force one of these, or nothing (NCCL4J_ALGO, NCCL4J_PROTO, --algo, --proto)");
    }
  }

  /** All ways to carry it out, in words. */
  private String ways(Operation operation) {
    return rows(operation).stream()
        .map(
            row ->
                row.algorithm(operation).label()
                    + " with "
                    + row.protocol().label()
                    + (row.most() == Long.MAX_VALUE ? "" : " up to " + row.most() + " B"))
        .distinct()
        .collect(Collectors.joining(", "));
  }

  private List<Row> rows(Operation operation) {
    return TuningTable.ROWS.stream().filter(row -> row.fits(operation, nranks, overHosts)).toList();
  }

  private boolean isWanted(Row row, Operation operation) {
    return (algorithm == null || row.algorithm(operation) == algorithm)
        && (protocol == null || row.protocol() == protocol);
  }

  // ---- for people

  /**
   * What runs from one size to another.
   *
   * @param memory for which memory: any, or in words
   * @param least bytes that a rank sends, all its blocks together; of v-forms a block
   * @param most likewise; {@link Long#MAX_VALUE} without a limit
   * @param chunk bytes that are moved at once
   */
  public record Range(
      Operation operation,
      String memory,
      long least,
      long most,
      Algorithm algorithm,
      Protocol protocol,
      long chunk,
      String why) {}

  /** Where the limits come from. */
  public static String machine() {
    return TuningTable.MACHINE;
  }

  /** All that can run, by operation, memory and size; nothing of operations that are refused. */
  public List<Range> ranges() {
    List<Range> ranges = new ArrayList<>();
    for (int i = 0; i < Operation.count(); i++) {
      Operation operation = Operation.of(i);
      if (operation == Operation.BARRIER) {
        Row only = inline(operation, Algorithm.FLAT);
        add(ranges, operation, "any", 0, 0, only, "no data: one exchange");
      } else if (TuningTable.moves(operation)
          && rows(operation).stream().anyMatch(row -> isWanted(row, operation))) {
        addRanges(ranges, operation);
      }
    }
    return ranges;
  }

  private void addRanges(List<Range> ranges, Operation operation) {
    String forced = isForced() ? "forced: " + describe(word()) : "";
    long inline = inline(operation);
    long shares = Math.min(shared[operation.number()], inline + 1);
    if (inline >= 0 && shares > 1) {
      Row flat = inline(operation, Algorithm.FLAT);
      add(ranges, operation, "any", 0, shares - 1, flat, forced);
    }
    if (inline >= shares) {
      Row share = inline(operation, Algorithm.SHARE);
      add(ranges, operation, "any", shares > 1 ? shares : 0, inline, share, forced);
    }
    long next = inline + 1;
    if (protocol == Protocol.LL || (algorithm != null && isOnlyInline(operation))) {
      return;
    }
    Row staged = row(operation, Protocol.STAGED);
    if (isStaged()) {
      add(ranges, operation, "any", next, Long.MAX_VALUE, staged, forced);
      return;
    }
    Row direct = row(operation, Protocol.DIRECT);
    Row stream = row(operation, Protocol.STREAM);
    boolean scaled = operation.isShared() || operation.sent() == Shape.EACH;
    long from = streamed[operation.number()];
    long parts = scaled ? nranks : 1;
    long switched = from > Long.MAX_VALUE / parts ? Long.MAX_VALUE : from * parts;
    if (switched > next) {
      long last = switched == Long.MAX_VALUE ? switched : switched - 1;
      add(ranges, operation, "any", next, last, direct, forced);
    }
    if (switched < Long.MAX_VALUE) {
      long start = Math.max(next, switched);
      add(ranges, operation, "any", start, Long.MAX_VALUE, stream, forced);
    }
    if (nranks > 1) {
      String memory = staged.placement().label();
      add(ranges, operation, memory, next, Long.MAX_VALUE, staged, "");
    }
  }

  private boolean isOnlyInline(Operation operation) {
    return rows(operation).stream()
        .filter(row -> isWanted(row, operation))
        .allMatch(row -> row.protocol() == Protocol.LL);
  }

  private Row row(Operation operation, Protocol wanted) {
    return first(operation, row -> row.protocol() == wanted);
  }

  private Row inline(Operation operation, Algorithm wanted) {
    return first(
        operation, row -> row.protocol() == Protocol.LL && row.algorithm(operation) == wanted);
  }

  private Row first(Operation operation, Predicate<Row> wanted) {
    return rows(operation).stream()
        .filter(wanted)
        .findFirst()
        .orElseThrow(() -> new IllegalStateException("no such row of " + operation.label()));
  }

  private static void add(
      List<Range> ranges,
      Operation operation,
      String memory,
      long least,
      long most,
      Row row,
      String why) {
    ranges.add(
        new Range(
            operation,
            memory,
            least,
            most,
            row.algorithm(operation),
            row.protocol(),
            row.chunk(),
            why.isEmpty() ? row.why() : why));
  }
}

package io.nccl4j;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.BiConsumer;
import org.jspecify.annotations.Nullable;

/**
 * How a communicator behaves. Immutable; unset values come from the environment, or else from the
 * defaults:
 *
 * <table>
 * <caption>Settings</caption>
 * <tr><th>name</th><th>environment</th><th>default</th><th>meaning</th></tr>
 * <tr><td>init-timeout</td><td>NCCL4J_INIT_TIMEOUT</td><td>120 s</td><td>how long to wait for all ranks to join</td></tr>
 * <tr><td>operation-timeout</td><td>NCCL4J_OPERATION_TIMEOUT</td><td>600 s</td><td>deadline of each operation, counted
 * from when this rank first had to wait for it</td></tr>
 * <tr><td>close-timeout</td><td>NCCL4J_CLOSE_TIMEOUT</td><td>10 s</td><td>how long close waits for unfinished operations</td></tr>
 * <tr><td>fifo-bytes</td><td>NCCL4J_FIFO_BYTES</td><td>1048576 B</td><td>work FIFO, a power of two, 4 KiB to 1
 * GiB</td></tr>
 * <tr><td>memory-budget</td><td>NCCL4J_MEMORY_BUDGET</td><td>none</td><td>the most memory in bytes that a rank of the communicator may take, as predicted: of the device, on the host backend shared memory</td></tr>
 * <tr><td>memory-policy</td><td>NCCL4J_MEMORY_POLICY</td><td>auto</td><td>what to do if it would take more: {@link
 * MemoryPolicy}</td></tr>
 * <tr><td>operation-times</td><td>NCCL4J_OPERATION_TIMES</td><td>off</td><td>whether {@link
 * OperationCounters} have times</td></tr>
 * <tr><td>jmx</td><td>NCCL4J_JMX</td><td>off</td><td>whether the communicator is an MXBean of the
 * platform's server: {@code io.nccl4j.management}</td></tr>
 * <tr><td>algo</td><td>NCCL4J_ALGO</td><td>unset</td><td>the algorithm to force, as {@link
 * Builder#algorithm} says</td></tr>
 * <tr><td>proto</td><td>NCCL4J_PROTO</td><td>unset</td><td>the protocol to force, as {@link
 * Builder#protocol} says</td></tr>
 * </table>
 *
 * <p>Timeouts in the environment are numbers with a unit: {@code 500ms}, {@code 30s}, {@code 5m};
 * {@code off} disables a deadline. A budget is in bytes, and may have a suffix {@code K}, {@code M}
 * or {@code G}. All ranks should have the same budget and policy: a refused rank may leave the
 * others waiting for it until their init timeout.
 */
public final class CommunicatorConfig {
  /** A timeout that never passes. */
  public static final Duration OFF = Duration.ofNanos(Long.MAX_VALUE);

  /** No limit on memory. */
  public static final long NO_BUDGET = Long.MAX_VALUE;

  private static final String INIT = "init-timeout";
  private static final String OPERATION = "operation-timeout";
  private static final String CLOSE = "close-timeout";
  private static final String FIFO = "fifo-bytes";
  private static final String BUDGET = "memory-budget";
  private static final String POLICY = "memory-policy";
  private static final String TIMES = "operation-times";
  private static final String JMX = "jmx";
  private static final String UNSET = "unset";
  private static final String ALGO = "algo";
  private static final String PROTO = "proto";

  private final @Nullable String name;
  private final Duration initTimeout;
  private final Duration operationTimeout;
  private final Duration closeTimeout;
  private final long fifoBytes;
  private final long memoryBudget;
  private final MemoryPolicy memoryPolicy;
  private final boolean timesOperations;
  private final boolean jmx;
  private final @Nullable String algorithm;
  private final @Nullable String protocol;
  private final @Nullable BiConsumer<? super Communicator, ? super NcclException> onFailure;
  private final Map<Class<?>, BackendOptions> options;
  private final Map<String, String> sources;

  private CommunicatorConfig(Builder builder) {
    this.name = builder.name;
    this.initTimeout = builder.initTimeout;
    this.operationTimeout = builder.operationTimeout;
    this.closeTimeout = builder.closeTimeout;
    this.fifoBytes = builder.fifoBytes;
    this.memoryBudget = builder.memoryBudget;
    this.memoryPolicy = builder.memoryPolicy;
    this.timesOperations = builder.timesOperations;
    this.jmx = builder.jmx;
    this.algorithm = builder.algorithm;
    this.protocol = builder.protocol;
    this.onFailure = builder.onFailure;
    this.options = new LinkedHashMap<>(builder.options);
    this.sources = Map.copyOf(builder.sources);
  }

  /**
   * The configuration given by the environment and the defaults.
   *
   * @throws InvalidArgumentException if a variable has an invalid value
   */
  public static CommunicatorConfig defaults() {
    return builder().build();
  }

  /** A builder that starts from the environment and the defaults. */
  public static Builder builder() {
    return new Builder(System.getenv());
  }

  static Builder builder(Map<String, String> environment) {
    return new Builder(environment);
  }

  /** The communicator's name in messages; null if none was given. */
  public @Nullable String name() {
    return name;
  }

  /** How long to wait for all ranks to join. */
  public Duration initTimeout() {
    return initTimeout;
  }

  /** The deadline of each operation, counted from when this rank first had to wait for it. */
  public Duration operationTimeout() {
    return operationTimeout;
  }

  /** How long {@link Communicator#close()} waits for unfinished operations. */
  public Duration closeTimeout() {
    return closeTimeout;
  }

  /** Size of the work FIFO in bytes. */
  public long fifoBytes() {
    return fifoBytes;
  }

  /** The most memory that a rank may take, in bytes, or {@link #NO_BUDGET}. */
  public long memoryBudget() {
    return memoryBudget;
  }

  /** What happens if a rank would take more, or more than is free. */
  public MemoryPolicy memoryPolicy() {
    return memoryPolicy;
  }

  /** Whether {@link OperationCounters} have times. */
  public boolean timesOperations() {
    return timesOperations;
  }

  /** Whether the communicator is an MXBean of the platform's server. */
  public boolean jmx() {
    return jmx;
  }

  /** The algorithm that is forced, if one is. */
  public Optional<String> algorithm() {
    return Optional.ofNullable(algorithm);
  }

  /** The protocol that is forced, if one is. */
  public Optional<String> protocol() {
    return Optional.ofNullable(protocol);
  }

  /** Who is told of the communicator's failure. */
  public Optional<BiConsumer<? super Communicator, ? super NcclException>> onFailure() {
    return Optional.ofNullable(onFailure);
  }

  /** The options of this class that were given, such as NCCL's. */
  public <T extends BackendOptions> Optional<T> options(Class<T> type) {
    return Optional.ofNullable(options.get(type)).map(type::cast);
  }

  /** All options that were given and that only one backend has. */
  public List<BackendOptions> options() {
    return List.copyOf(options.values());
  }

  /** A builder that starts from this configuration, and keeps the sources of its settings. */
  public Builder toBuilder() {
    Builder copy = new Builder(Map.of());
    copy.name = name;
    copy.initTimeout = initTimeout;
    copy.operationTimeout = operationTimeout;
    copy.closeTimeout = closeTimeout;
    copy.fifoBytes = fifoBytes;
    copy.memoryBudget = memoryBudget;
    copy.memoryPolicy = memoryPolicy;
    copy.timesOperations = timesOperations;
    copy.jmx = jmx;
    copy.algorithm = algorithm;
    copy.protocol = protocol;
    copy.onFailure = onFailure;
    copy.options.putAll(options);
    copy.sources.putAll(sources);
    return copy;
  }

  /**
   * All settings with their effective values and sources, including those of {@link #options()}.
   */
  public List<Setting> settings() {
    List<Setting> settings = new ArrayList<>();
    settings.add(setting(INIT, text(initTimeout)));
    settings.add(setting(OPERATION, text(operationTimeout)));
    settings.add(setting(CLOSE, text(closeTimeout)));
    settings.add(setting(FIFO, fifoBytes + " B"));
    settings.add(setting(BUDGET, memoryBudget == NO_BUDGET ? "none" : memoryBudget + " B"));
    settings.add(setting(POLICY, memoryPolicy.label()));
    settings.add(setting(TIMES, text(timesOperations)));
    settings.add(setting(JMX, text(jmx)));
    settings.add(setting(ALGO, algorithm().orElse(UNSET)));
    settings.add(setting(PROTO, protocol().orElse(UNSET)));
    options.values().forEach(given -> settings.addAll(given.settings()));
    return List.copyOf(settings);
  }

  private Setting setting(String setting, String value) {
    return new Setting(setting, value, sources.getOrDefault(setting, "default"));
  }

  private static String text(boolean isOn) {
    return isOn ? "on" : "off";
  }

  private static String text(Duration duration) {
    return duration.equals(OFF) ? "off" : duration.toMillis() + " ms";
  }

  /** Builds a configuration. Not thread-safe. */
  public static final class Builder {
    private static final long MIN_FIFO = 4 << 10;
    private static final long MAX_FIFO = 1 << 30;

    private final Map<String, String> sources = new TreeMap<>();
    private final Map<Class<?>, BackendOptions> options = new LinkedHashMap<>();
    private @Nullable String name;
    private Duration initTimeout = Duration.ofSeconds(120);
    private Duration operationTimeout = Duration.ofSeconds(600);
    private Duration closeTimeout = Duration.ofSeconds(10);
    private long fifoBytes = 1 << 20;
    private long memoryBudget = NO_BUDGET;
    private MemoryPolicy memoryPolicy = MemoryPolicy.AUTO;
    private boolean timesOperations;
    private boolean jmx;
    private @Nullable String algorithm;
    private @Nullable String protocol;
    private @Nullable BiConsumer<? super Communicator, ? super NcclException> onFailure;

    private Builder(Map<String, String> environment) {
      String init = fromEnvironment(environment, INIT);
      if (init != null) {
        initTimeout = duration(INIT, init);
      }
      String operation = fromEnvironment(environment, OPERATION);
      if (operation != null) {
        operationTimeout = duration(OPERATION, operation);
      }
      String close = fromEnvironment(environment, CLOSE);
      if (close != null) {
        closeTimeout = duration(CLOSE, close);
      }
      String fifo = fromEnvironment(environment, FIFO);
      if (fifo != null) {
        fifoBytes = fifoBytes(fifo);
      }
      String budget = fromEnvironment(environment, BUDGET);
      if (budget != null) {
        memoryBudget = ByteText.parse(BUDGET, budget);
      }
      String policy = fromEnvironment(environment, POLICY);
      if (policy != null) {
        memoryPolicy = MemoryPolicy.ofLabel(policy);
      }
      String times = fromEnvironment(environment, TIMES);
      if (times != null) {
        timesOperations = isOn(TIMES, times);
      }
      String management = fromEnvironment(environment, JMX);
      if (management != null) {
        jmx = isOn(JMX, management);
      }
      algorithm = fromEnvironment(environment, ALGO);
      protocol = fromEnvironment(environment, PROTO);
    }

    private @Nullable String fromEnvironment(Map<String, String> environment, String setting) {
      String variable = "NCCL4J_" + setting.replace('-', '_').toUpperCase(Locale.ROOT);
      String value = environment.get(variable);
      if (value != null) {
        sources.put(setting, variable);
      }
      return value;
    }

    /** The communicator's name in messages. */
    public Builder name(String name) {
      this.name = name;
      return this;
    }

    /** How long to wait for all ranks to join; {@link CommunicatorConfig#OFF} waits for ever. */
    public Builder initTimeout(Duration timeout) {
      initTimeout = positive(INIT, timeout);
      return this;
    }

    /** The deadline of each operation; {@link CommunicatorConfig#OFF} disables it. */
    public Builder operationTimeout(Duration timeout) {
      operationTimeout = positive(OPERATION, timeout);
      return this;
    }

    /** How long close waits for unfinished operations. */
    public Builder closeTimeout(Duration timeout) {
      closeTimeout = positive(CLOSE, timeout);
      return this;
    }

    /** Size of the work FIFO: a power of two, 4 KiB to 1 GiB. */
    public Builder fifoBytes(long bytes) {
      if (bytes < MIN_FIFO || bytes > MAX_FIFO || Long.bitCount(bytes) != 1) {
        throw new InvalidArgumentException(
            FIFO + " is " + bytes + " B",
            "use a power of two from " + MIN_FIFO + " to " + MAX_FIFO);
      }
      fifoBytes = bytes;
      sources.put(FIFO, "argument");
      return this;
    }

    /**
     * The most memory that a rank of the communicator may take, according to {@link
     * io.nccl4j.memory.MemoryPrediction}: of the device, on the host backend shared memory. Sends
     * and receives take more, as described there.
     *
     * @param bytes 1 or more, or {@link CommunicatorConfig#NO_BUDGET}
     */
    public Builder memoryBudget(long bytes) {
      if (bytes < 1) {
        throw new InvalidArgumentException(
            BUDGET + " is " + bytes + " B", "use 1 or more, or CommunicatorConfig.NO_BUDGET");
      }
      memoryBudget = bytes;
      sources.put(BUDGET, "argument");
      return this;
    }

    /** What happens if a rank would take more than its budget, or more than is free. */
    public Builder memoryPolicy(MemoryPolicy policy) {
      memoryPolicy = Require.present(policy, "memoryPolicy");
      sources.put(POLICY, "argument");
      return this;
    }

    /**
     * Whether operations are timed, see {@link OperationCounters}. Costs two looks at the clock for
     * each operation.
     */
    public Builder timesOperations(boolean isOn) {
      timesOperations = isOn;
      sources.put(TIMES, "argument");
      return this;
    }

    /**
     * Whether the communicator is an MXBean of the platform's MBean server, from its creation until
     * it is closed, or aborted by its own process. See {@code io.nccl4j.management}.
     */
    public Builder jmx(boolean isOn) {
      jmx = isOn;
      sources.put(JMX, "argument");
      return this;
    }

    /**
     * Forces an algorithm, for measuring; all ranks must force the same. On the host backend one of
     * those that {@code ./nccl4j info --tuning} shows: what has not got it is refused when it is
     * called. On cuda it is the value of {@code NCCL_ALGO}, for all communicators of the process.
     */
    public Builder algorithm(String name) {
      algorithm = Require.present(name, ALGO);
      sources.put(ALGO, "argument");
      return this;
    }

    /** Forces a protocol likewise; on cuda the value of {@code NCCL_PROTO}. */
    public Builder protocol(String name) {
      protocol = Require.present(name, PROTO);
      sources.put(PROTO, "argument");
      return this;
    }

    /**
     * Who is told when the communicator fails, for whatever reason: a contradiction between ranks,
     * a dead peer, a deadline, an abort by this or another rank, a close that gave up unfinished
     * operations. It is called once for each communicator, soon after the failure is noticed, which
     * happens even while no thread is in a call; never for a communicator that is closed without a
     * failure, and not for one whose creation fails, which throws.
     *
     * <p>The call is made by a thread of {@link java.util.concurrent.ForkJoinPool#commonPool()}, or
     * by a new one where that pool has a single processor; it holds no lock. It may do what any
     * thread may do with a communicator, such as {@link Communicator#abort()}. What it throws is
     * logged. Ranks made from this configuration, and children that inherit it, call the same
     * object, perhaps at the same time.
     *
     * @param listener gets the communicator and an exception of its own that says what happened
     */
    public Builder onFailure(BiConsumer<? super Communicator, ? super NcclException> listener) {
      onFailure = Require.present(listener, "failure listener");
      return this;
    }

    /** Options that only one backend has; they replace those given before of the same class. */
    public Builder with(BackendOptions options) {
      this.options.put(Require.present(options, "options").getClass(), options);
      return this;
    }

    /** Builds the configuration. */
    public CommunicatorConfig build() {
      return new CommunicatorConfig(this);
    }

    private Duration positive(String setting, Duration timeout) {
      Require.present(timeout, setting);
      if (timeout.isNegative() || timeout.isZero()) {
        throw new InvalidArgumentException(
            setting + " is " + timeout, "use a positive duration, or CommunicatorConfig.OFF");
      }
      sources.put(setting, "argument");
      return atMostOff(timeout);
    }

    /** A duration beyond the range of a long in nanoseconds means never. */
    private static Duration atMostOff(Duration timeout) {
      return timeout.compareTo(OFF) > 0 ? OFF : timeout;
    }

    private long fifoBytes(String text) {
      try {
        fifoBytes(Long.parseLong(text));
      } catch (NumberFormatException e) {
        throw new InvalidArgumentException(
                "NCCL4J_FIFO_BYTES is '" + text + "'", "use a number of bytes, for example 1048576")
            .causedBy(e);
      }
      sources.put(FIFO, "NCCL4J_FIFO_BYTES");
      return fifoBytes;
    }

    private static boolean isOn(String setting, String text) {
      return switch (text) {
        case "on" -> true;
        case "off" -> false;
        default ->
            throw new InvalidArgumentException(
                setting + " is '" + text + "'", "use on or off, or leave it out");
      };
    }

    private static Duration duration(String setting, String text) {
      if (text.equals("off")) {
        return OFF;
      }
      java.util.regex.Matcher matcher =
          java.util.regex.Pattern.compile("([1-9][0-9]{0,11})(ms|s|m)").matcher(text);
      if (!matcher.matches()) {
        throw new InvalidArgumentException(
            setting + " is '" + text + "'", "use a number with a unit: 500ms, 30s or 5m; or off");
      }
      long number = Long.parseLong(matcher.group(1));
      return atMostOff(
          switch (matcher.group(2)) {
            case "ms" -> Duration.ofMillis(number);
            case "s" -> Duration.ofSeconds(number);
            default -> Duration.ofMinutes(number);
          });
    }
  }
}

package io.nccl4j.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Setting;
import io.nccl4j.Unstable;
import io.nccl4j.internal.check.Require;
import io.nccl4j.memory.MemoryOptions;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/**
 * NCCL's options for one communicator, its {@code ncclConfig_t}. Immutable. Unset fields are left
 * to NCCL; the host backend ignores all of them.
 *
 * <p>NCCL's environment overrides the program: {@link #settings()} shows the overriding variable.
 * If the loaded NCCL is too old for a field, creating a communicator throws an {@link
 * InvalidUsageException}; the message says which version has it.
 *
 * <p>The communicator's name goes to NCCL as its {@code commName} (2.27 or newer), which appears in
 * its log and its RAS client.
 */
@Unstable
public final class NcclOptions implements MemoryOptions {
  /** A field of {@code ncclConfig_t} that a program may set. */
  public enum Option {
    /** Whether calls wait; see {@link Builder#blocking}. */
    BLOCKING("blocking", 21400, "NCCL_COMM_BLOCKING", 0, 1),
    /** CTAs of a cluster. */
    CGA_CLUSTER_SIZE("cgaClusterSize", 21700, "NCCL_CGA_CLUSTER_SIZE", 0, 8),
    /** Fewest CTAs of a kernel. */
    MIN_CTAS("minCTAs", 21700, "NCCL_MIN_CTAS", 1, Integer.MAX_VALUE),
    /** Most CTAs of a kernel. */
    MAX_CTAS("maxCTAs", 21700, "NCCL_MAX_CTAS", 1, Integer.MAX_VALUE),
    /** Name of the network; the only one that is a text. */
    NET_NAME("netName", 21700, "NCCL_NET", 0, 0),
    /** Whether children of a split share resources. */
    SPLIT_SHARE("splitShare", 21800, "NCCL_COMM_SPLIT_SHARE_RESOURCES", 0, 1),
    /** Class of traffic for the network. */
    TRAFFIC_CLASS("trafficClass", 22600, "", Integer.MIN_VALUE + 1, Integer.MAX_VALUE),
    /** Whether switches reduce. */
    COLLNET_ENABLE("collnetEnable", 22700, "NCCL_COLLNET_ENABLE", 0, 1),
    /** What CTAs are used for; bits of {@link CtaPolicy}. */
    CTA_POLICY("CTAPolicy", 22700, "NCCL_CTA_POLICY", 0, 2),
    /** Whether children of a shrink share resources. */
    SHRINK_SHARE("shrinkShare", 22700, "NCCL_COMM_SHRINK_SHARE_RESOURCES", 0, 1),
    /** CTAs of NVLS kernels. */
    NVLS_CTAS("nvlsCTAs", 22700, "NCCL_NVLS_NCHANNELS", 1, Integer.MAX_VALUE),
    /** Channels to each peer over the network. */
    CHANNELS_PER_NET_PEER("nChannelsPerNetPeer", 22800, "NCCL_NCHANNELS_PER_NET_PEER", 1, 64),
    /** Whether the schedule favours NVLink. */
    NVLINK_CENTRIC_SCHED(
        "nvlinkCentricSched", 22800, "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE", 0, 1),
    /** How graphs are used, the ordinal of {@link GraphUsage}. */
    GRAPH_USAGE_MODE("graphUsageMode", 22900, "NCCL_GRAPH_MIXING_SUPPORT", 0, 2),
    /** Contexts of one-sided operations. */
    NUM_RMA_CTX("numRmaCtx", 22900, "NCCL_NUM_RMA_CTX", 0, Integer.MAX_VALUE),
    /** The most peers of point-to-point operations at a time. */
    MAX_P2P_PEERS("maxP2pPeers", 23000, "NCCL_P2P_MAX_PEERS", 1, Integer.MAX_VALUE),
    /** Whether captured operations keep their stream's order. */
    GRAPH_STREAM_ORDERING("graphStreamOrdering", 23005, "NCCL_GRAPH_STREAM_ORDERING", 0, 1);

    private final String label;
    private final int version;
    private final String variable;
    private final int min;
    private final int max;

    Option(String label, int version, String variable, int min, int max) {
      this.label = label;
      this.version = version;
      this.variable = variable;
      this.min = min;
      this.max = max;
    }

    /** The field's name in NCCL's header. */
    public String label() {
      return label;
    }

    /** The first NCCL that has it, encoded like {@code ncclGetVersion}: 22700 for 2.27.0. */
    public int version() {
      return version;
    }

    /** The variable of the environment that overrides it; empty if there is none. */
    public String variable() {
      return variable;
    }
  }

  /** What NCCL saves CTAs for. */
  public enum CtaPolicy {
    /** The fastest single operation. */
    DEFAULT,
    /** Fewer CTAs where that costs little. */
    EFFICIENCY,
    /** No CTAs where copy engines can do the work. */
    ZERO
  }

  /** How a communicator is used in graphs. */
  public enum GraphUsage {
    /** Never. */
    NONE,
    /** Only in graphs, one at a time. */
    SINGLE,
    /** In several graphs and outside graphs, in any order. */
    MIXING
  }

  private static final NcclOptions DEFAULTS = builder().build();

  private final Map<Option, Integer> values;
  private final @Nullable String netName;

  /** Sources of fields that something other than the program has set. */
  private final Map<Option, String> sources = new EnumMap<>(Option.class);

  private NcclOptions(Builder builder) {
    this.values = new EnumMap<>(builder.values);
    this.netName = builder.netName;
  }

  /** Everything left to NCCL. */
  public static NcclOptions defaults() {
    return DEFAULTS;
  }

  /** Those of a configuration, which may be the defaults. */
  public static NcclOptions of(CommunicatorConfig config) {
    return config.options(NcclOptions.class).orElse(DEFAULTS);
  }

  /** A builder that leaves everything to NCCL. */
  public static Builder builder() {
    return new Builder();
  }

  /**
   * A copy with other numbers.
   *
   * @param source who sets them, for {@link #settings()}
   * @throws InvalidArgumentException if a number is out of range, or they contradict others
   */
  public NcclOptions with(Map<Option, Integer> numbers, String source) {
    Builder builder = builder();
    builder.values.putAll(values);
    builder.netName = netName;
    numbers.forEach(builder::set);
    NcclOptions copy = builder.build();
    copy.sources.putAll(sources);
    numbers.keySet().forEach(option -> copy.sources.put(option, source));
    return copy;
  }

  @Override
  public MemoryQuery applyTo(MemoryQuery query) {
    MemoryQuery with = query;
    with = with(with, Lever.MIN_CTAS, Option.MIN_CTAS);
    with = with(with, Lever.MAX_CTAS, Option.MAX_CTAS);
    with = with(with, Lever.NVLS_CHANNELS, Option.NVLS_CTAS);
    return with(with, Lever.MAX_P2P_PEERS, Option.MAX_P2P_PEERS);
  }

  private MemoryQuery with(MemoryQuery query, Lever lever, Option option) {
    Integer value = values.get(option);
    return value == null ? query : query.with(lever, Math.min(value, lever.max()));
  }

  /**
   * The number set for a field, 0 and 1 for no and yes; empty if unset. {@link Option#NET_NAME} has
   * no number.
   */
  public OptionalInt value(Option option) {
    Integer value = values.get(option);
    return value == null ? OptionalInt.empty() : OptionalInt.of(value);
  }

  /** The network's name; null if unset. */
  public @Nullable String netName() {
    return netName;
  }

  /** Whether a field was set. */
  public boolean isSet(Option option) {
    return option == Option.NET_NAME ? netName != null : values.containsKey(option);
  }

  /**
   * All fields with their effective values and sources, named {@code nccl.} plus the field. If a
   * variable of the environment overrides a field, it is the source and provides the value.
   */
  @Override
  public List<Setting> settings() {
    return settings(System.getenv());
  }

  List<Setting> settings(Map<String, String> environment) {
    List<Setting> settings = new ArrayList<>();
    for (Option option : Option.values()) {
      settings.add(setting(option, environment.getOrDefault(option.variable, "")));
    }
    return List.copyOf(settings);
  }

  private Setting setting(Option option, String override) {
    String name = "nccl." + option.label;
    String own = option == Option.NET_NAME ? netName : text(values.get(option));
    if (!override.isEmpty()) {
      String note = own == null ? "" : " (overrides the argument " + own + ")";
      return new Setting(name, override, option.variable + note);
    }
    if (own != null) {
      return new Setting(name, own, sources.getOrDefault(option, "argument"));
    }
    return new Setting(name, option == Option.BLOCKING ? "1" : "NCCL's choice", "default");
  }

  private static @Nullable String text(@Nullable Integer value) {
    return value == null ? null : value.toString();
  }

  /** Builds options. Not thread-safe. */
  public static final class Builder {
    private final Map<Option, Integer> values = new EnumMap<>(Option.class);
    private @Nullable String netName;

    private Builder() {}

    /**
     * Whether NCCL's calls wait for other ranks; by default they do. Otherwise NCCL starts a thread
     * for each launch, which costs ten times as much, but a thread that drives several ranks need
     * not group their first operations. Deadlines and {@link Communicator#abort} work either way.
     * The two kinds of communicators must not meet in one group.
     */
    public Builder blocking(boolean blocking) {
      return set(Option.BLOCKING, blocking);
    }

    /** CTAs of a cluster, 0 to 8; 0: no clusters. */
    public Builder cgaClusterSize(int size) {
      return set(Option.CGA_CLUSTER_SIZE, size);
    }

    /** Fewest CTAs of a kernel, 1 or more and at most {@link #maxCtas}. */
    public Builder minCtas(int ctas) {
      return set(Option.MIN_CTAS, ctas);
    }

    /** Most CTAs of a kernel, 1 or more; NCCL uses at most 64. */
    public Builder maxCtas(int ctas) {
      return set(Option.MAX_CTAS, ctas);
    }

    /** The network's name, for example {@code Socket} or {@code IB}. */
    public Builder netName(String name) {
      if (Require.present(name, "netName").isBlank()) {
        throw new InvalidArgumentException("netName is empty", "pass a name, for example Socket");
      }
      netName = name;
      return this;
    }

    /**
     * Whether a child of {@link Communicator#split} shares its parent's resources. If such a child
     * fails or is aborted, NCCL ends its parent, too.
     */
    public Builder splitShare(boolean share) {
      return set(Option.SPLIT_SHARE, share);
    }

    /** Class of traffic, passed to the network unchanged. */
    public Builder trafficClass(int trafficClass) {
      return set(Option.TRAFFIC_CLASS, trafficClass);
    }

    /** Whether switches reduce (SHARP). */
    public Builder collnetEnable(boolean enable) {
      return set(Option.COLLNET_ENABLE, enable);
    }

    /** What NCCL saves CTAs for. */
    public Builder ctaPolicy(CtaPolicy policy) {
      return set(Option.CTA_POLICY, Require.present(policy, "ctaPolicy").ordinal());
    }

    /** Whether a child of {@link NcclCommunicator#shrink} shares its parent's resources. */
    public Builder shrinkShare(boolean share) {
      return set(Option.SHRINK_SHARE, share);
    }

    /** CTAs of NVLS kernels, 1 or more; determines how much memory NVLS takes. */
    public Builder nvlsCtas(int ctas) {
      return set(Option.NVLS_CTAS, ctas);
    }

    /** Channels to each peer over the network: a power of two, 1 to 64. */
    public Builder channelsPerNetPeer(int channels) {
      return set(Option.CHANNELS_PER_NET_PEER, channels);
    }

    /** Whether the schedule favours NVLink. */
    public Builder nvlinkCentricSched(boolean enable) {
      return set(Option.NVLINK_CENTRIC_SCHED, enable);
    }

    /** How the communicator is used in graphs. */
    public Builder graphUsageMode(GraphUsage usage) {
      return set(Option.GRAPH_USAGE_MODE, Require.present(usage, "graphUsageMode").ordinal());
    }

    /** Contexts of one-sided operations, 0 or more. */
    public Builder numRmaCtx(int contexts) {
      return set(Option.NUM_RMA_CTX, contexts);
    }

    /** Most peers of point-to-point operations at a time, 1 or more: sizes NCCL's buffers. */
    public Builder maxP2pPeers(int peers) {
      return set(Option.MAX_P2P_PEERS, peers);
    }

    /**
     * Whether captured operations keep their stream's order. Disabling it needs a {@link
     * #graphUsageMode} other than {@link GraphUsage#MIXING}, which is NCCL's default.
     */
    public Builder graphStreamOrdering(boolean order) {
      return set(Option.GRAPH_STREAM_ORDERING, order);
    }

    private Builder set(Option option, boolean value) {
      values.put(option, value ? 1 : 0);
      return this;
    }

    private Builder set(Option option, int value) {
      if (option == Option.NET_NAME) {
        throw new InvalidArgumentException("netName is no number", "pass it to netName");
      }
      if (option == Option.CHANNELS_PER_NET_PEER && Integer.bitCount(value) != 1) {
        throw wrong(option, value, "a power of two from 1 to 64");
      }
      if (value < option.min || value > option.max) {
        throw wrong(
            option,
            value,
            option.max == Integer.MAX_VALUE
                ? option.min + " or more"
                : option.min + " to " + option.max);
      }
      values.put(option, value);
      return this;
    }

    private static InvalidArgumentException wrong(Option option, int value, String range) {
      return new InvalidArgumentException(option.label + " is " + value, "use " + range);
    }

    /**
     * Builds the options.
     *
     * @throws InvalidArgumentException if two of them contradict each other
     */
    public NcclOptions build() {
      int min = values.getOrDefault(Option.MIN_CTAS, 1);
      int max = values.getOrDefault(Option.MAX_CTAS, Integer.MAX_VALUE);
      if (min > max) {
        throw new InvalidArgumentException(
            "minCTAs is " + min + ", maxCTAs " + max, "use a minCTAs of at most maxCTAs");
      }
      boolean ordered = values.getOrDefault(Option.GRAPH_STREAM_ORDERING, 1) == 1;
      int usage = values.getOrDefault(Option.GRAPH_USAGE_MODE, GraphUsage.MIXING.ordinal());
      if (!ordered && usage == GraphUsage.MIXING.ordinal()) {
        throw new InvalidArgumentException(
            "graphStreamOrdering is off while graphs may be mixed",
            "set graphUsageMode to NONE or SINGLE, too");
      }
      return new NcclOptions(this);
    }
  }
}

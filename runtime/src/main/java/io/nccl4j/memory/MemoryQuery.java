package io.nccl4j.memory;

import io.nccl4j.Backend;
import io.nccl4j.BackendOptions;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.internal.check.Require;
import java.util.EnumMap;
import java.util.Map;
import java.util.OptionalLong;
import org.jspecify.annotations.Nullable;

/**
 * The properties of a planned communicator on which its memory depends, the input of {@link
 * MemoryPrediction}. Immutable.
 *
 * <pre>{@code
 * MemoryQuery query = MemoryQuery.of(Backend.CUDA).with(Lever.NRANKS, 16).with(Lever.NVLS, 0);
 * }</pre>
 */
public final class MemoryQuery {
  /** Something that the memory of a communicator depends on. */
  public enum Lever {
    // The host's come first, up to RECEIVE_PEERS.
    /** Ranks of the communicator. */
    NRANKS("nranks", 8, 1, 1 << 20, ""),
    /** Ranks on one machine; all of them if not set. */
    RANKS_PER_NODE("gpus-per-node", -1, 1, 1 << 20, ""),
    /** Ranks that are threads of one process. */
    RANKS_PER_PROCESS("ranks-per-process", 1, 1, 1 << 20, ""),
    /** Bytes of nccl4j's work FIFO. */
    FIFO("fifo", 1 << 20, 4 << 10, 1 << 30, "NCCL4J_FIFO_BYTES"),
    /** Peers with which this rank exchanges messages, in both directions. */
    PEERS("peers", 0, 0, 1 << 20, ""),
    /** Further peers, to which this rank only sends. */
    SEND_PEERS("send-peers", 0, 0, 1 << 20, ""),
    /** Further peers, from which this rank only receives. */
    RECEIVE_PEERS("receive-peers", 0, 0, 1 << 20, ""),
    /** Compute capability: 70 to 120. */
    ARCH("arch", 90, 70, 129, ""),
    /** NCCL's version, as {@code ncclGetVersion} counts: 23007 for 2.30.7. */
    NCCL("nccl", 23007, 21900, 99999, ""),
    /** Channels of collectives; by default NCCL's choice between GPUs with NVLink. */
    CHANNELS("channels", -1, 1, 64, ""),
    /** Fewest CTAs, and so channels. */
    MIN_CTAS("min-ctas", 1, 1, 64, "NCCL_MIN_CTAS"),
    /** Most CTAs, and so channels. */
    MAX_CTAS("max-ctas", 64, 1, Integer.MAX_VALUE, "NCCL_MAX_CTAS"),
    /** Channels to each peer of sends and receives. */
    PEER_CHANNELS("peer-channels", -1, 1, 64, ""),
    /** NCCL's {@code maxP2pPeers}, which matters on several machines. */
    MAX_P2P_PEERS("max-p2p-peers", -1, 1, Integer.MAX_VALUE, "NCCL_P2P_MAX_PEERS"),
    /** Bytes of a buffer of the protocol Simple. */
    BUFFSIZE("buffsize", 4 << 20, 1, 1 << 30, "NCCL_BUFFSIZE"),
    /** Bytes of a buffer of the protocol LL. */
    LL_BUFFSIZE("ll-buffsize", 512 << 10, 1, 1 << 30, "NCCL_LL_BUFFSIZE"),
    /** Bytes of a buffer of the protocol LL128. */
    LL128_BUFFSIZE("ll128-buffsize", 4800 << 10, 1, 1 << 30, "NCCL_LL128_BUFFSIZE"),
    /** Whether multicast is used: 0 for no. */
    NVLS("nvls", 1, 0, 2, "NCCL_NVLS_ENABLE"),
    /** Channels of NVLS. */
    NVLS_CHANNELS("nvls-channels", -1, 1, 64, "NCCL_NVLS_NCHANNELS"),
    /** Bytes of a chunk of NVLS. */
    NVLS_CHUNKSIZE("nvls-chunksize", 128 << 10, 1, 1 << 27, "NCCL_NVLS_CHUNKSIZE"),
    /** Whether GPUs reach each other's memory: 0 for no; they then use shared memory. */
    P2P("p2p", 1, 0, 1, "NCCL_P2P_DISABLE"),
    /** Whether shared memory may be used. */
    SHM("shm", 1, 0, 1, "NCCL_SHM_DISABLE"),
    /**
     * Whether collectives may go along trees; if not set, wherever NCCL's model of times could
     * choose them. Any value of {@code NCCL_ALGO} sets it.
     */
    TREES("trees", -1, 0, 1, ""),
    /** Whether NCCL shares host memory through CUDA, not through files in {@code /dev/shm}. */
    CUMEM_HOST("cumem-host", -1, 0, 1, "NCCL_CUMEM_HOST_ENABLE"),
    /** Whether NCCL connects at the first collective; if not, when joining. */
    RUNTIME_CONNECT("runtime-connect", 1, 0, 1, "NCCL_RUNTIME_CONNECT"),
    /** Bytes of NCCL's own work FIFO. */
    WORK_FIFO("work-fifo", -1, 1, 1 << 30, "NCCL_WORK_FIFO_BYTES");

    private final String label;
    private final long standard;
    private final long min;
    private final long max;
    private final String variable;

    Lever(String label, long standard, long min, long max, String variable) {
      this.label = label;
      this.standard = standard;
      this.min = min;
      this.max = max;
      this.variable = variable;
    }

    /** Its name on the command line. */
    public String label() {
      return label;
    }

    /** The largest value. */
    public long max() {
      return max;
    }

    /** The variable of the environment that sets it; empty if there is none. */
    public String variable() {
      return variable;
    }
  }

  /** NCCL's channels where ranks share a GPU, or there is only one rank. */
  public static final int ONE_GPU_CHANNELS = 64;

  private final Backend backend;
  private final Map<Lever, Long> values;

  private MemoryQuery(Backend backend, Map<Lever, Long> values) {
    this.backend = backend;
    this.values = values;
  }

  /**
   * A query for eight ranks on one machine; on cuda, each with a GPU of compute capability 9.0, and
   * NCCL 2.30.7.
   *
   * @throws InvalidArgumentException for {@link Backend#AUTO}, which is not resolved here
   */
  public static MemoryQuery of(Backend backend) {
    if (Require.present(backend, "backend") == Backend.AUTO) {
      throw new InvalidArgumentException(
          "the backend is auto", "predict for Backend.HOST or Backend.CUDA");
    }
    return new MemoryQuery(backend, new EnumMap<>(Lever.class));
  }

  /**
   * A copy with another value.
   *
   * @throws InvalidArgumentException if the value is out of range
   */
  public MemoryQuery with(Lever lever, long value) {
    if (value < lever.min || value > lever.max) {
      throw new InvalidArgumentException(
          lever.label + " is " + value, "use " + lever.min + " to " + lever.max);
    }
    Map<Lever, Long> changed = new EnumMap<>(Lever.class);
    changed.putAll(values);
    changed.put(lever, value);
    return new MemoryQuery(backend, changed);
  }

  /** A copy with the values that a configuration sets. */
  public MemoryQuery with(CommunicatorConfig config) {
    MemoryQuery query = with(Lever.FIFO, config.fifoBytes());
    for (BackendOptions options : config.options()) {
      query = options instanceof MemoryOptions levers ? levers.applyTo(query) : query;
    }
    return query;
  }

  /** A copy for ranks that all share one GPU: NCCL then uses the most channels, and no NVLS. */
  public MemoryQuery onOneGpu() {
    return with(Lever.CHANNELS, ONE_GPU_CHANNELS).with(Lever.NVLS, 0);
  }

  /**
   * A copy with the values that NCCL's variables set; they override a configuration. Values that
   * are not numbers in range are ignored, as NCCL does.
   */
  public MemoryQuery withEnvironment(Map<String, String> environment) {
    MemoryQuery query = this;
    for (Lever lever : Lever.values()) {
      OptionalLong value = number(environment.get(lever.variable));
      if (value.isPresent()) {
        boolean disables = lever.variable.endsWith("_DISABLE");
        long number = disables ? (value.getAsLong() == 0 ? 1 : 0) : value.getAsLong();
        if (number >= lever.min && number <= lever.max) {
          query = query.with(lever, number);
        }
      }
    }
    String algorithms = environment.get("NCCL_ALGO");
    return algorithms == null || algorithms.isBlank() ? query : query.with(Lever.TREES, 1);
  }

  private static OptionalLong number(@Nullable String text) {
    return text == null || !text.strip().matches("[0-9]{1,18}")
        ? OptionalLong.empty()
        : OptionalLong.of(Long.parseLong(text.strip()));
  }

  /** The communicator's backend. */
  public Backend backend() {
    return backend;
  }

  /** Whether a value was set. */
  public boolean isSet(Lever lever) {
    return values.containsKey(lever);
  }

  /** The value in effect; −1 if left to NCCL. */
  public long value(Lever lever) {
    Long value = values.get(lever);
    if (value == null) {
      return lever == Lever.RANKS_PER_NODE ? value(Lever.NRANKS) : lever.standard;
    }
    return lever == Lever.RANKS_PER_NODE ? Math.min(value, value(Lever.NRANKS)) : value;
  }

  /** The value in effect, or {@code otherwise} if left to NCCL. */
  public long value(Lever lever, long otherwise) {
    long value = value(lever);
    return value < 0 ? otherwise : value;
  }
}

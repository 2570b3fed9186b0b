package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.NcclStructs;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.cuda.NcclOptions.Option;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** A configuration as NCCL reads it. */
public final class NcclConfig {
  /** NCCL keeps the name's pointer, from this version on. */
  private static final int FIRST_WITH_NAME = 22700;

  private NcclConfig() {}

  /**
   * The structure, in {@code arena}, which the call needs.
   *
   * @param name what {@link #name} made, to be kept until the communicator has ended
   * @throws InvalidUsageException if a field is set that the loaded NCCL does not have
   */
  public static MemorySegment write(Arena arena, CommunicatorConfig config, MemorySegment name) {
    NcclOptions options = NcclOptions.of(config);
    requireKnown(options);
    MemorySegment struct = ncclConfig_v23000.allocate(arena);
    NcclStructs.fillConfig(struct);
    // Otherwise NCCL starts a thread for every launch, which costs ten times the launch.
    ncclConfig_v23000.blocking(struct, options.value(Option.BLOCKING).orElse(1));
    for (Option option : Option.values()) {
      options.value(option).ifPresent(value -> set(struct, option, value));
    }
    String net = options.netName();
    if (net != null) {
      ncclConfig_v23000.netName(struct, arena.allocateFrom(net));
    }
    ncclConfig_v23000.commName(struct, name);
    return struct;
  }

  /**
   * The communicator's name as C reads it, NULL if it has none. It lives as long as the segment is
   * reachable: NCCL copies only its address.
   */
  public static MemorySegment name(CommunicatorConfig config) {
    String name = config.name();
    return name == null || CudaLibraries.ncclVersion() < FIRST_WITH_NAME
        ? MemorySegment.NULL
        : Arena.ofAuto().allocateFrom(name);
  }

  /**
   * Throws if a field is set that the loaded NCCL does not have.
   *
   * @throws InvalidUsageException that says which version has it
   */
  public static void requireKnown(NcclOptions options) {
    int loaded = CudaLibraries.ncclVersion();
    for (Option option : Option.values()) {
      if (options.isSet(option) && loaded < option.version()) {
        throw new InvalidUsageException(
            "NCCL " + CudaLibraries.versionText(loaded) + " has no " + option.label(),
            "leave it out, or install NCCL "
                + CudaLibraries.versionText(option.version())
                + " or newer");
      }
    }
  }

  /** Whether calls of the communicator wait; the environment beats the program. */
  public static boolean isBlocking(CommunicatorConfig config) {
    String override = System.getenv(Option.BLOCKING.variable());
    return override == null || override.isEmpty()
        ? NcclOptions.of(config).value(Option.BLOCKING).orElse(1) == 1
        : !override.strip().equals("0");
  }

  private static void set(MemorySegment struct, Option option, int value) {
    switch (option) {
      case BLOCKING -> ncclConfig_v23000.blocking(struct, value);
      case CGA_CLUSTER_SIZE -> ncclConfig_v23000.cgaClusterSize(struct, value);
      case MIN_CTAS -> ncclConfig_v23000.minCTAs(struct, value);
      case MAX_CTAS -> ncclConfig_v23000.maxCTAs(struct, value);
      case SPLIT_SHARE -> ncclConfig_v23000.splitShare(struct, value);
      case TRAFFIC_CLASS -> ncclConfig_v23000.trafficClass(struct, value);
      case COLLNET_ENABLE -> ncclConfig_v23000.collnetEnable(struct, value);
      case CTA_POLICY -> ncclConfig_v23000.CTAPolicy(struct, value);
      case SHRINK_SHARE -> ncclConfig_v23000.shrinkShare(struct, value);
      case NVLS_CTAS -> ncclConfig_v23000.nvlsCTAs(struct, value);
      case CHANNELS_PER_NET_PEER -> ncclConfig_v23000.nChannelsPerNetPeer(struct, value);
      case NVLINK_CENTRIC_SCHED -> ncclConfig_v23000.nvlinkCentricSched(struct, value);
      case GRAPH_USAGE_MODE -> ncclConfig_v23000.graphUsageMode(struct, value);
      case NUM_RMA_CTX -> ncclConfig_v23000.numRmaCtx(struct, value);
      case MAX_P2P_PEERS -> ncclConfig_v23000.maxP2pPeers(struct, value);
      case GRAPH_STREAM_ORDERING -> ncclConfig_v23000.graphStreamOrdering(struct, value);
      case NET_NAME -> throw new AssertionError(option);
    }
  }
}

package io.nccl4j.bindings;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclCommProperties;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.bindings.nccl.ncclSimInfo_v22200;
import java.lang.foreign.MemorySegment;

/**
 * Initial values of NCCL's versioned structures, which its header holds in macros.
 *
 * <p>Zeros are no substitute: a configuration of zeros asks for no CTAs and a non-blocking
 * communicator. Size and version are those of the header, whatever library is loaded: an older one
 * reads the part that it knows, a newer one takes its defaults for the rest.
 */
public final class NcclStructs {
  /** Magic number of {@code ncclSimInfo_t}; {@code NCCL_API_MAGIC} is that of the others. */
  private static final int SIM_INFO_MAGIC = 0x74685283;

  private NcclStructs() {}

  /**
   * {@code NCCL_CONFIG_INITIALIZER}: every field left to NCCL.
   *
   * @param config an {@code ncclConfig_t}
   */
  public static void fillConfig(MemorySegment config) {
    int undefined = Nccl.NCCL_CONFIG_UNDEF_INT();
    config.fill((byte) 0);
    ncclConfig_v23000.size(config, ncclConfig_v23000.sizeof());
    ncclConfig_v23000.magic(config, Nccl.NCCL_API_MAGIC());
    ncclConfig_v23000.version(config, Nccl.NCCL_VERSION_CODE());
    ncclConfig_v23000.blocking(config, undefined);
    ncclConfig_v23000.cgaClusterSize(config, undefined);
    ncclConfig_v23000.minCTAs(config, undefined);
    ncclConfig_v23000.maxCTAs(config, undefined);
    ncclConfig_v23000.netName(config, MemorySegment.NULL);
    ncclConfig_v23000.splitShare(config, undefined);
    ncclConfig_v23000.trafficClass(config, undefined);
    ncclConfig_v23000.commName(config, MemorySegment.NULL);
    ncclConfig_v23000.collnetEnable(config, undefined);
    ncclConfig_v23000.CTAPolicy(config, undefined);
    ncclConfig_v23000.shrinkShare(config, undefined);
    ncclConfig_v23000.nvlsCTAs(config, undefined);
    ncclConfig_v23000.nChannelsPerNetPeer(config, undefined);
    ncclConfig_v23000.nvlinkCentricSched(config, undefined);
    ncclConfig_v23000.graphUsageMode(config, undefined);
    ncclConfig_v23000.numRmaCtx(config, undefined);
    ncclConfig_v23000.maxP2pPeers(config, undefined);
    ncclConfig_v23000.graphStreamOrdering(config, undefined);
  }

  /**
   * {@code NCCL_SIM_INFO_INITIALIZER}.
   *
   * @param info an {@code ncclSimInfo_t}
   */
  public static void fillSimInfo(MemorySegment info) {
    info.fill((byte) 0);
    ncclSimInfo_v22200.size(info, ncclSimInfo_v22200.sizeof());
    ncclSimInfo_v22200.magic(info, SIM_INFO_MAGIC);
    ncclSimInfo_v22200.version(info, Nccl.NCCL_VERSION_CODE());
    ncclSimInfo_v22200.estimatedTime(info, Nccl.NCCL_UNDEF_FLOAT());
  }

  /**
   * {@code NCCL_COMM_PROPERTIES_INITIALIZER}.
   *
   * @param properties an {@code ncclCommProperties_t}
   */
  public static void fillProperties(MemorySegment properties) {
    properties.fill((byte) 0);
    ncclCommProperties.size(properties, ncclCommProperties.sizeof());
    ncclCommProperties.magic(properties, Nccl.NCCL_API_MAGIC());
    ncclCommProperties.version(properties, Nccl.NCCL_VERSION_CODE());
  }
}

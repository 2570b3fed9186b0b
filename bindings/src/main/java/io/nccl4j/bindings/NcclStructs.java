package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclCommProperties;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.bindings.nccl.ncclDevComm;
import io.nccl4j.bindings.nccl.ncclDevCommRequirements;
import io.nccl4j.bindings.nccl.ncclMultimemHandle;
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

  /** Bytes of {@code ncclDevCommRequirements} of the newest headers. */
  public static final long DEVICE_REQUIREMENTS_BYTES = ncclDevCommRequirements.sizeof();

  /** From 2.29.5 on requirements name a connection. */
  private static final int CONNECTION_TYPES = 22905;

  /** From 2.30 on a device communicator begins with magic number and version. */
  private static final int VERSIONED = 23000;

  private static final long VERSION_BYTES = 2L * Integer.BYTES;

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

  // ---- device communicators, whose layout is that of the kernels' headers

  /**
   * {@code NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER} of the headers of a version. Their fields are
   * the first of the newest; a library is told how many there are.
   *
   * @param requirements an {@code ncclDevCommRequirements}
   * @param headers {@code NCCL_VERSION_CODE}, 22902 or more
   */
  public static void fillDeviceRequirements(MemorySegment requirements, int headers) {
    requirements.fill((byte) 0);
    long size =
        headers < CONNECTION_TYPES
            ? ncclDevCommRequirements.ginConnectionType$offset()
            : headers < VERSIONED ? 88 : DEVICE_REQUIREMENTS_BYTES;
    ncclDevCommRequirements.size(requirements, size);
    ncclDevCommRequirements.magic(requirements, Nccl.NCCL_API_MAGIC());
    ncclDevCommRequirements.version(requirements, headers);
    ncclDevCommRequirements.ginContextCount(requirements, 4);
    ncclDevCommRequirements.ginTrafficClass(requirements, Nccl.NCCL_CONFIG_UNDEF_INT());
    ncclDevCommRequirements.ginStrongSignalsRequired(requirements, true);
    ncclDevCommRequirements.ginVaSignalsRequired(requirements, true);
  }

  /** Bytes of the {@code ncclDevComm} of the headers of a version. */
  public static long deviceCommunicatorBytes(int headers) {
    return headers < CONNECTION_TYPES ? 200 : headers < VERSIONED ? 224 : ncclDevComm.sizeof();
  }

  /** Place among the ranks that reach each other's memory. */
  public static int lsaRank(MemorySegment communicator, int headers) {
    return communicator.get(JAVA_INT, ncclDevComm.lsaRank$offset() - missing(headers));
  }

  /** Number of these ranks. */
  public static int lsaSize(MemorySegment communicator, int headers) {
    return communicator.get(JAVA_INT, ncclDevComm.lsaSize$offset() - missing(headers));
  }

  /** Their multicast, an {@code ncclMultimemHandle}; its address is NULL if there is none. */
  public static MemorySegment lsaMultimem(MemorySegment communicator, int headers) {
    return communicator.asSlice(
        ncclDevComm.lsaMultimem$offset() - missing(headers), ncclMultimemHandle.sizeof());
  }

  /**
   * Bytes that older structures lack at their start; up to the network's fields the rest is one.
   */
  private static long missing(int headers) {
    return headers < VERSIONED ? VERSION_BYTES : 0;
  }
}

package io.nccl4j.cuda;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Unstable;
import java.util.OptionalInt;
import org.jspecify.annotations.Nullable;

/**
 * What a device communicator is to hold for the kernels that use it, NCCL's {@code
 * ncclDevCommRequirements}. Immutable.
 *
 * <p><b>Versions.</b> Kernels are compiled against NCCL's device headers, and read the device
 * communicator by the layout of these: NCCL makes it of the layout that the requirements name, and
 * refuses one that is newer than itself. {@link NcclCommunicator#createDeviceCommunicator} says so
 * before it calls NCCL.
 */
@Unstable
public final class NcclDeviceRequirements {
  /** The oldest headers whose layout a library can be asked for: those of NCCL 2.29.2. */
  public static final int OLDEST_HEADERS = 22902;

  private static final int WITH_CONNECTION_TYPE = 22905;
  private static final int WITH_WORLD_BARRIERS = 23000;

  /** Which ranks kernels reach through the network, {@code ncclGinConnectionType_t}. */
  public enum GinConnection {
    /** None. */
    NONE,
    /** All ranks. */
    FULL,
    /** Those of the same rail: with the same place in their sets of ranks that share memory. */
    RAIL
  }

  private final Builder values;

  private NcclDeviceRequirements(Builder values) {
    this.values = values;
  }

  /**
   * A builder of requirements for kernels compiled with the headers of a version of NCCL.
   *
   * @param headers their {@code NCCL_VERSION_CODE}: 23007 for 2.30.7
   * @throws InvalidUsageException if the version is older than {@link #OLDEST_HEADERS}: before it,
   *     no library could tell the layouts apart
   */
  public static Builder builder(int headers) {
    if (headers < OLDEST_HEADERS) {
      throw new InvalidUsageException(
          "the kernels were compiled with NCCL's headers of version " + headers,
          "compile them with the headers of NCCL 2.29.2 or newer; pass NCCL_VERSION_CODE");
    }
    return new Builder(headers);
  }

  /** Version of the headers that the kernels were compiled with. */
  public int headers() {
    return values.headers;
  }

  /** Barriers of the ranks that reach each other's memory, one per block that synchronizes. */
  public int lsaBarriers() {
    return values.lsaBarriers;
  }

  /** Barriers of all ranks: by memory where that can be reached, else through the network. */
  public int barriers() {
    return values.barriers;
  }

  /** Barriers of the ranks of a rail, through the network. */
  public int railGinBarriers() {
    return values.railGinBarriers;
  }

  /** Barriers of all ranks, all through the network. */
  public int worldGinBarriers() {
    return values.worldGinBarriers;
  }

  /** Whether windows get addresses of multicast. */
  public boolean lsaMultimem() {
    return values.lsaMultimem;
  }

  /** Which ranks kernels reach through the network. */
  public GinConnection ginConnection() {
    return values.ginConnection;
  }

  /** Contexts of the network; a hint. */
  public int ginContexts() {
    return values.ginContexts;
  }

  /** Whether the contexts are shared with no other device communicator. */
  public boolean ginExclusiveContexts() {
    return values.ginExclusiveContexts;
  }

  /** Signals of the network, numbered from 0. */
  public int ginSignals() {
    return values.ginSignals;
  }

  /** Counters of the network, numbered from 0. */
  public int ginCounters() {
    return values.ginCounters;
  }

  /** Depth of the network's queues; 0 leaves it to NCCL. */
  public int ginQueueDepth() {
    return values.ginQueueDepth;
  }

  /** Class of traffic for the network; empty leaves it to NCCL. */
  public OptionalInt ginTrafficClass() {
    Integer value = values.ginTrafficClass;
    return value == null ? OptionalInt.empty() : OptionalInt.of(value);
  }

  /** Whether anything of it needs the network. */
  public boolean usesGin() {
    return ginConnection() != GinConnection.NONE;
  }

  /** Collects requirements; used by one thread. {@link #build} checks them. */
  public static final class Builder {
    private final int headers;
    private int lsaBarriers;
    private int barriers;
    private int railGinBarriers;
    private int worldGinBarriers;
    private boolean lsaMultimem;
    private GinConnection ginConnection = GinConnection.NONE;
    private int ginContexts = 4;
    private boolean ginExclusiveContexts;
    private int ginSignals;
    private int ginCounters;
    private int ginQueueDepth;
    private @Nullable Integer ginTrafficClass;

    private Builder(int headers) {
      this.headers = headers;
    }

    private Builder(Builder other) {
      headers = other.headers;
      lsaBarriers = other.lsaBarriers;
      barriers = other.barriers;
      railGinBarriers = other.railGinBarriers;
      worldGinBarriers = other.worldGinBarriers;
      lsaMultimem = other.lsaMultimem;
      ginConnection = other.ginConnection;
      ginContexts = other.ginContexts;
      ginExclusiveContexts = other.ginExclusiveContexts;
      ginSignals = other.ginSignals;
      ginCounters = other.ginCounters;
      ginQueueDepth = other.ginQueueDepth;
      ginTrafficClass = other.ginTrafficClass;
    }

    /** Sets {@link NcclDeviceRequirements#lsaBarriers}; default 0. */
    public Builder lsaBarriers(int value) {
      lsaBarriers = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#barriers}; default 0. They need a GIN connection. */
    public Builder barriers(int value) {
      barriers = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#railGinBarriers}; default 0. */
    public Builder railGinBarriers(int value) {
      railGinBarriers = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#worldGinBarriers}; default 0. Headers of 2.30. */
    public Builder worldGinBarriers(int value) {
      worldGinBarriers = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#lsaMultimem}; default false. */
    public Builder lsaMultimem(boolean value) {
      lsaMultimem = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginConnection}; default none. Headers of 2.29.7. */
    public Builder ginConnection(GinConnection value) {
      ginConnection = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginContexts}; default 4. */
    public Builder ginContexts(int value) {
      ginContexts = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginExclusiveContexts}; default false. */
    public Builder ginExclusiveContexts(boolean value) {
      ginExclusiveContexts = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginSignals}; default 0. */
    public Builder ginSignals(int value) {
      ginSignals = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginCounters}; default 0. */
    public Builder ginCounters(int value) {
      ginCounters = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginQueueDepth}; default 0. */
    public Builder ginQueueDepth(int value) {
      ginQueueDepth = value;
      return this;
    }

    /** Sets {@link NcclDeviceRequirements#ginTrafficClass}; by default it is NCCL's choice. */
    public Builder ginTrafficClass(int value) {
      ginTrafficClass = value;
      return this;
    }

    /**
     * The requirements.
     *
     * @throws InvalidArgumentException if a number is negative, the network's resources are asked
     *     for without a connection, or the headers do not have what is asked for
     */
    public NcclDeviceRequirements build() {
      requireNumbers();
      boolean needsGin =
          barriers > 0
              || railGinBarriers > 0
              || worldGinBarriers > 0
              || ginSignals > 0
              || ginCounters > 0;
      if (needsGin && ginConnection == GinConnection.NONE) {
        throw new InvalidArgumentException(
            "barriers, signals or counters of the network are asked for, but no connection",
            "call ginConnection(FULL) or ginConnection(RAIL), or ask for lsaBarriers only");
      }
      if (worldGinBarriers > 0 && ginConnection == GinConnection.RAIL) {
        throw new InvalidArgumentException(
            "barriers of all ranks are asked for, but only rails are connected",
            "call ginConnection(FULL)");
      }
      requireHeaders(ginConnection != GinConnection.NONE, "GIN connections", WITH_CONNECTION_TYPE);
      requireHeaders(worldGinBarriers > 0, "worldGinBarriers", WITH_WORLD_BARRIERS);
      requireHeaders(ginTrafficClass != null, "ginTrafficClass", WITH_WORLD_BARRIERS);
      return new NcclDeviceRequirements(new Builder(this));
    }

    private void requireNumbers() {
      int[] numbers = {
        lsaBarriers,
        barriers,
        railGinBarriers,
        worldGinBarriers,
        ginContexts,
        ginSignals,
        ginCounters,
        ginQueueDepth
      };
      for (int number : numbers) {
        if (number < 0) {
          throw new InvalidArgumentException(
              "a requirement of a device communicator is " + number, "ask for 0 or more");
        }
      }
      if (ginConnection == null) {
        throw new InvalidArgumentException("the connection is null", "pass one");
      }
    }

    private void requireHeaders(boolean asked, String what, int version) {
      if (asked && headers < version) {
        throw new InvalidArgumentException(
            "NCCL's headers of version " + headers + " have no " + what,
            "compile the kernels with newer headers, and pass their NCCL_VERSION_CODE");
      }
    }
  }
}

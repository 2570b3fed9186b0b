package io.nccl4j.internal.memory;

import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction.Basis;
import io.nccl4j.memory.MemoryPrediction.Line;
import io.nccl4j.memory.MemoryPrediction.When;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayList;
import java.util.List;

/**
 * The memory that NCCL takes for one rank, computed as its source does, releases 2.19 to 2.30.
 * Every allocation of device memory is rounded up to 2 MiB, however small.
 */
public final class NcclMemory {
  private static final long PAGE = 4096;
  private static final long GRANULARITY = 2 << 20;

  /** CUDA recommends it for multicast objects; NVLS memory was rounded up to it. */
  private static final long MULTICAST_GRANULARITY = 512L << 20;

  private static final int STEPS = 8;

  /** Bytes of the tables that each side of a connection has in front of its buffers. */
  private static final long CONNECTION = 4096;

  /** A channel's entry for a peer, on the device: four connections. */
  private static final long PEER_ENTRY = 640;

  private static final long SHM_REFERENCES = 4;

  /** GPUs, and how many of them on a machine, for which NCCL's model of times was computed. */
  private static final int HOPPER = 90;

  private static final int MODELLED_RANKS = 8;
  private static final int V2_20 = 22000;
  private static final int V2_21 = 22100;
  private static final int V2_22 = 22200;
  private static final int V2_23 = 22300;
  private static final int V2_24 = 22400;
  private static final int V2_25 = 22500;
  private static final int V2_26 = 22600;
  private static final int V2_27 = 22700;
  private static final int V2_28_7 = 22807;
  private static final int V2_30 = 23000;

  private final MemoryQuery query;
  private final int version;
  private final int nranks;
  private final int local;
  private final int arch;
  private final int channels;
  private final int p2pChannels;
  private final List<Line> lines = new ArrayList<>();

  private NcclMemory(MemoryQuery query) {
    this.query = query;
    version = (int) query.value(Lever.NCCL);
    nranks = (int) query.value(Lever.NRANKS);
    local = (int) query.value(Lever.RANKS_PER_NODE);
    arch = (int) query.value(Lever.ARCH);
    channels = bounded(query.value(Lever.CHANNELS, standardChannels()));
    p2pChannels = powerOfTwo(channels);
  }

  /** What NCCL will take. */
  public static List<Line> lines(MemoryQuery query) {
    NcclMemory memory = new NcclMemory(query);
    memory.channels();
    memory.nvls();
    memory.neighbours();
    memory.exchange();
    memory.host();
    return memory.lines;
  }

  /**
   * Bytes of the multicast buffers as NCCL logs them ({@code nvlsTotalSize}), before they are
   * rounded up; 0 where there is no NVLS.
   */
  static long nvlsTotalBytes(MemoryQuery query) {
    NcclMemory memory = new NcclMemory(query);
    return memory.usesNvls() ? memory.nvlsTotal() : 0;
  }

  // ---- channels

  private int standardChannels() {
    if (nranks == 1) {
      return MemoryQuery.ONE_GPU_CHANNELS;
    }
    if (query.value(Lever.P2P) == 0) {
      return 2;
    }
    return arch < 80 ? 12 : 24;
  }

  private int bounded(long wanted) {
    long most = Math.min(query.value(Lever.MAX_CTAS), version < V2_25 ? 32 : 64);
    return (int) Math.max(query.value(Lever.MIN_CTAS), Math.min(wanted, most));
  }

  private static int powerOfTwo(int number) {
    return number <= 1 ? 1 : Integer.highestOneBit(number - 1) << 1;
  }

  /** Three tables for each channel, and the communicator's own. */
  private void channels() {
    int all = Math.max(p2pChannels, usesNvls() ? nvlsChannels() : 0);
    long entries = device(nranks * PEER_ENTRY);
    long perChannel = entries + 2 * device(nranks * (long) Long.BYTES);
    boolean measured = isMeasured() || isMeasuredAlone();
    device(
        MemoryPurpose.CHANNEL,
        When.JOIN,
        all * perChannel,
        measured ? Basis.MEASURED : Basis.DERIVED,
        measured
            ? nranks
                + " H200, NCCL 2.30.7: "
                + (nranks == 1 ? 384 : 192)
                + " MiB suspendable after joining"
            : source() + ": " + all + " channels, 3 tables of 2 MiB each");
    int tables = version < V2_23 ? 1 : 2;
    device(
        MemoryPurpose.NCCL,
        When.JOIN,
        tables * GRANULARITY,
        Basis.DERIVED,
        source() + ": the communicator and its tables");
  }

  // ---- NVLS

  private boolean usesNvls() {
    int fewest = version < V2_28_7 ? 3 : 2;
    boolean onlyOneNode = version >= V2_20 && version < V2_21;
    return query.value(Lever.NVLS) != 0
        && (!onlyOneNode || local == nranks)
        && query.value(Lever.P2P) != 0
        && arch >= 90
        && local >= fewest;
  }

  private int nvlsChannels() {
    int standard = 16;
    if (arch >= 100 && version >= V2_25) {
      standard = version >= V2_27 && local == nranks ? 24 : 32;
    }
    return bounded(query.value(Lever.NVLS_CHANNELS, standard));
  }

  private long nvlsTotal() {
    // Before 2.21 a step was as large as that of other algorithms; up to there each of the regions
    // had 2 MiB for credits.
    long buffer =
        version < V2_21 ? query.value(Lever.BUFFSIZE) : query.value(Lever.NVLS_CHUNKSIZE) * STEPS;
    long credits = version < V2_22 ? 2 << 20 : 0;
    return (long) local * nvlsChannels() * 2 * (buffer + credits);
  }

  private void nvls() {
    if (!usesNvls()) {
      return;
    }
    long total = nvlsTotal();
    boolean roundsUpToMulticast = version < V2_26;
    long bytes = up(total, roundsUpToMulticast ? MULTICAST_GRANULARITY : GRANULARITY);
    boolean lazy = version >= V2_22 && query.value(Lever.RUNTIME_CONNECT) != 0;
    String logged = loggedNvls();
    device(
        MemoryPurpose.NVLS,
        lazy ? When.COLLECTIVE : When.JOIN,
        bytes,
        logged.isEmpty() ? Basis.DERIVED : Basis.LOGGED,
        logged.isEmpty()
            ? source()
                + ": "
                + local
                + " heads, "
                + nvlsChannels()
                + " channels, "
                + total
                + " B"
                + (roundsUpToMulticast ? " rounded up to 512 MiB" : "")
            : logged);
    long tables = nvlsChannels() * device(local * PEER_ENTRY);
    device(
        MemoryPurpose.NVLS,
        When.JOIN,
        tables + (version < V2_22 ? 0 : GRANULARITY),
        Basis.DERIVED,
        source() + ": credits and tables of " + nvlsChannels() + " channels");
  }

  /** The log that has this size; empty if none has. */
  private String loggedNvls() {
    boolean plain =
        local == nranks
            && arch == 90
            && nvlsChannels() == 16
            && query.value(Lever.NVLS_CHUNKSIZE) == 128 << 10
            && query.value(Lever.BUFFSIZE) == 4 << 20;
    if (plain && version < V2_21 && local == 4) {
      return "NVIDIA/nccl #1609: nvlsTotalSize 805306368, rounded up to 512 MiB";
    }
    if (plain && version < V2_21 && local == 8) {
      return "NVIDIA/nccl #1043: 1536 MiB a GPU on 8 H100";
    }
    if (plain && version >= V2_26 && local == 8) {
      return "logs of 8 H100 from 2.26: 256 MiB a GPU";
    }
    return "";
  }

  // ---- connections

  private boolean isMeasuredAlone() {
    return version == 23007
        && arch == 90
        && nranks == 1
        && channels == MemoryQuery.ONE_GPU_CHANNELS;
  }

  private boolean isMeasured() {
    return version == 23007
        && arch == 90
        && nranks == 2
        && local == 2
        && !usesNvls()
        && channels == 24
        && query.value(Lever.P2P) != 0
        && connection() == 12 << 20;
  }

  private long buffers() {
    return query.value(Lever.BUFFSIZE)
        + query.value(Lever.LL_BUFFSIZE)
        + query.value(Lever.LL128_BUFFSIZE);
  }

  /** Both sides of one channel with one peer. */
  private long connection() {
    return sending() + receiving();
  }

  /** On A100s, which read, the largest buffer is the sender's. */
  private long senders() {
    return arch == 80 ? query.value(Lever.BUFFSIZE) : 0;
  }

  private long sending() {
    return device(CONNECTION + senders());
  }

  private long receiving() {
    return device(CONNECTION + buffers() - senders());
  }

  /** Both sides as files. */
  private long shared() {
    return sharedSending() + sharedReceiving();
  }

  private long sharedSending() {
    return up(CONNECTION + SHM_REFERENCES, PAGE);
  }

  private long sharedReceiving() {
    return up(CONNECTION + buffers() + SHM_REFERENCES, PAGE);
  }

  /** Rings have two neighbours, one to send to and one to receive from; trees go both ways. */
  private void neighbours() {
    if (nranks == 1) {
      return;
    }
    boolean lazy = version >= V2_22 && query.value(Lever.RUNTIME_CONNECT) != 0;
    When when = lazy ? When.COLLECTIVE : When.JOIN;
    String what = source() + ": " + channels + " channels, 1 connection each";
    boolean measured = isMeasured();
    neighbours(
        MemoryPurpose.RING,
        when,
        measured ? Basis.MEASURED : Basis.DERIVED,
        measured
            ? "2 H200, NCCL 2.30.7: 480 MiB suspendable after the first allReduce"
            : what + (local < nranks ? ", at most" : ""));
    // Two ranks have the same neighbour in both.
    if (nranks > 2 && (!lazy || mayUseTrees())) {
      neighbours(
          MemoryPurpose.TREE,
          when,
          Basis.DERIVED,
          what + (lazy ? ", at most: if NCCL runs an allReduce along a tree" : ""));
    }
  }

  private void neighbours(MemoryPurpose purpose, When when, Basis basis, String text) {
    if (query.value(Lever.P2P) != 0) {
      device(purpose, when, channels * connection(), basis, text);
    } else if (query.value(Lever.SHM) != 0 && local > 1) {
      line(purpose, sharedPlace(), when, channels * shared(), basis, text);
    }
  }

  /**
   * NCCL connects the neighbours of an algorithm when its model of times chooses that for the first
   * time, by the size. On one machine with up to eight Hopper GPUs it takes rings for less than
   * trees at every size, whatever channels were found and however fast they are, up to 700 GB/s in
   * all. Elsewhere the choice depends on what NCCL's search for rings finds.
   */
  private boolean mayUseTrees() {
    boolean ringsAreFaster =
        version >= V2_24 && arch == HOPPER && local == nranks && nranks <= MODELLED_RANKS;
    return query.value(Lever.TREES, ringsAreFaster ? 0 : 1) != 0;
  }

  /** CUDA shares host memory of different processes; those of one use a file even then. */
  private MemoryPlace sharedPlace() {
    boolean byCuda = query.value(Lever.CUMEM_HOST, version < V2_24 ? 0 : 1) != 0;
    return byCuda && query.value(Lever.RANKS_PER_PROCESS) == 1
        ? MemoryPlace.PINNED
        : MemoryPlace.SHM;
  }

  private int peerChannels() {
    int each = p2pChannels;
    if (local < nranks) {
      long peers = version < V2_30 ? nranks : query.value(Lever.MAX_P2P_PEERS, nranks);
      while (each > 1 && each * ((peers + STEPS - 1) / STEPS) > p2pChannels) {
        each /= 2;
      }
    }
    return (int) Math.min(query.value(Lever.PEER_CHANNELS, each), p2pChannels);
  }

  private void exchange() {
    boolean direct = query.value(Lever.P2P) != 0;
    if (!direct && (query.value(Lever.SHM) == 0 || local == 1)) {
      return;
    }
    long most = (direct ? nranks : local) - 1L;
    long both = Math.min(query.value(Lever.PEERS), most);
    long to = Math.min(both + query.value(Lever.SEND_PEERS), most);
    long from = Math.min(both + query.value(Lever.RECEIVE_PEERS), most);
    if (to + from == 0) {
      return;
    }
    line(
        MemoryPurpose.EXCHANGE,
        direct ? MemoryPlace.DEVICE : sharedPlace(),
        When.EXCHANGE,
        peerChannels()
            * (direct
                ? to * sending() + from * receiving()
                : to * sharedSending() + from * sharedReceiving()),
        Basis.DERIVED,
        source()
            + ": "
            + (to == from ? to + " peers, " : "to " + to + " and from " + from + " peers, ")
            + peerChannels()
            + " channels each"
            + (direct && local < nranks ? ", at most" : ""));
  }

  // ---- the host

  private void host() {
    boolean slots = version < V2_22;
    line(
        MemoryPurpose.FIFO,
        MemoryPlace.PINNED,
        When.JOIN,
        query.value(Lever.WORK_FIFO, slots ? 32 << 20 : 1 << 20),
        Basis.DERIVED,
        source() + (slots ? ": 65536 slots of 512 B" : ": NCCL_WORK_FIFO_BYTES"));
    if (local < nranks) {
      // Operations times their size, and the lists of free ones.
      long pool = version < V2_22 ? 65_536 * 112 + 352 : 65_536 * 232 + 384;
      pool = version < V2_25 ? pool : 147_456 * 232 + 384;
      line(
          MemoryPurpose.PROXY,
          MemoryPlace.SHM,
          When.COLLECTIVE,
          up(pool + SHM_REFERENCES, PAGE),
          Basis.DERIVED,
          source() + ": pool of operations for the network, " + pool + " B");
    }
  }

  // ---- lines

  private String source() {
    return "NCCL " + version / 10000 + "." + version / 100 % 100;
  }

  private void device(MemoryPurpose purpose, When when, long bytes, Basis basis, String source) {
    line(purpose, MemoryPlace.DEVICE, when, bytes, basis, source);
  }

  private void line(
      MemoryPurpose purpose, MemoryPlace place, When when, long bytes, Basis basis, String source) {
    lines.add(new Line(purpose, place, when, bytes, basis, source));
  }

  private static long device(long bytes) {
    return up(bytes, GRANULARITY);
  }

  private static long up(long bytes, long unit) {
    return (bytes + unit - 1) / unit * unit;
  }
}

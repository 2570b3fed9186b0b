package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.output.MemoryJson;
import io.nccl4j.bench.run.MemoryMeasurement;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.Locale;
import java.util.concurrent.Callable;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Command;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Option;
import picocli.CommandLine.Spec;

/** {@code nccl4j memory}: what a communicator will take, and what it takes. */
@SuppressWarnings("unused") // options of levers are read by their names
@Command(
    name = "memory",
    description =
        "Predicts how much memory a rank of a communicator takes, and measures it on request.",
    versionProvider = Version.class,
    usageHelpWidth = 100,
    sortOptions = false,
    footer = {
      "",
      "Without --measure, no library is loaded and no communicator is created. NCCL's environment",
      "variables are honored; options override them.",
      "Exit code: 0 success, 1 internal error, 2 bad option, 3 failure, 4 timeout."
    })
final class MemoryCommand implements Callable<Integer> {
  private final Context context;

  @Spec private CommandSpec spec;

  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description =
          "host, cuda or auto; auto predicts for cuda, and measures what can be used; default"
              + " ${DEFAULT-VALUE}.")
  private String backend;

  @Option(
      names = "--nranks",
      paramLabel = "N",
      description = "Ranks of the communicator; default 8, or -t with --measure.")
  private @Nullable String nranks;

  @Option(
      names = "--gpus-per-node",
      paramLabel = "N",
      description = "Ranks on one machine; default all.")
  private @Nullable String gpusPerNode;

  @Option(
      names = "--ranks-per-process",
      paramLabel = "N",
      description = "Ranks that are threads of one process; default 1.")
  private @Nullable String ranksPerProcess;

  @Option(
      names = "--arch",
      paramLabel = "SM",
      description = "Compute capability of the GPUs, for example sm90; default sm90.")
  private @Nullable String arch;

  @Option(
      names = "--nccl",
      paramLabel = "VERSION",
      description = "NCCL's release, for example 2.19; default 2.30.7.")
  private @Nullable String nccl;

  @Option(
      names = "--peers",
      paramLabel = "N",
      description = "Peers with which a rank exchanges messages; default 0.")
  private @Nullable String peers;

  @Option(
      names = "--channels",
      paramLabel = "N",
      description = "Channels of collectives; default as between GPUs with NVLink.")
  private @Nullable String channels;

  @Option(names = "--min-ctas", paramLabel = "N", description = "NCCL's minCTAs; default 1.")
  private @Nullable String minCtas;

  @Option(names = "--max-ctas", paramLabel = "N", description = "NCCL's maxCTAs; default 64.")
  private @Nullable String maxCtas;

  @Option(
      names = "--peer-channels",
      paramLabel = "N",
      description = "Channels to each peer of sends and receives; default by NCCL's rule.")
  private @Nullable String peerChannels;

  @Option(
      names = "--max-p2p-peers",
      paramLabel = "N",
      description = "NCCL's maxP2pPeers; default nranks.")
  private @Nullable String maxP2PPeers;

  @Option(
      names = "--buffsize",
      paramLabel = "SIZE",
      description = "Buffer of the protocol Simple; default 4M.")
  private @Nullable String buffsize;

  @Option(
      names = "--ll-buffsize",
      paramLabel = "SIZE",
      description = "Buffer of the protocol LL; default 512K.")
  private @Nullable String llBuffsize;

  @Option(
      names = "--ll128-buffsize",
      paramLabel = "SIZE",
      description = "Buffer of the protocol LL128; default 4800K.")
  private @Nullable String ll128Buffsize;

  @Option(
      names = "--nvls",
      paramLabel = "on|off",
      description = "Whether multicast is used; default on.")
  private @Nullable String nvls;

  @Option(
      names = "--nvls-channels",
      paramLabel = "N",
      description = "Channels of NVLS; default by NCCL's rule.")
  private @Nullable String nvlsChannels;

  @Option(
      names = "--nvls-chunksize",
      paramLabel = "SIZE",
      description = "Chunk of NVLS; default 128K.")
  private @Nullable String nvlsChunksize;

  @Option(
      names = "--p2p",
      paramLabel = "on|off",
      description = "Whether GPUs reach each other; default on.")
  private @Nullable String p2P;

  @Option(
      names = "--shm",
      paramLabel = "on|off",
      description = "Whether shared memory may be used; default on.")
  private @Nullable String shm;

  @Option(
      names = "--cumem-host",
      paramLabel = "on|off",
      description = "Whether CUDA shares host memory; default on from 2.24.")
  private @Nullable String cumemHost;

  @Option(
      names = "--runtime-connect",
      paramLabel = "on|off",
      description = "Whether NCCL connects at the first collective; default on.")
  private @Nullable String runtimeConnect;

  @Option(
      names = "--work-fifo",
      paramLabel = "SIZE",
      description = "NCCL's work FIFO; default 1M, up to 2.21 32M.")
  private @Nullable String workFifo;

  @Option(names = "--fifo", paramLabel = "SIZE", description = "nccl4j's work FIFO; default 1M.")
  private @Nullable String fifo;

  @Option(
      names = "--measure",
      description = "Create the communicator, run an allReduce, and show what was taken.")
  private boolean measure;

  @Option(
      names = {"-t", "--nthreads"},
      paramLabel = "N",
      defaultValue = "2",
      description = "With --measure: ranks, threads of this process; default ${DEFAULT-VALUE}.")
  private int threads;

  @Option(names = "--json", description = "Write JSON.")
  private boolean json;

  /** The command. */
  MemoryCommand(Context context) {
    this.context = context;
  }

  @Override
  public Integer call() throws Exception {
    MemoryPrediction prediction = MemoryPrediction.of(OptionRange.checked(spec, this::query));
    MemoryMeasurement measured = measure ? MemoryMeasurement.of(prediction, threads) : null;
    if (json) {
      MemoryJson.write(context.out(), prediction, measured);
    } else {
      context.out().print(prediction);
      context.out().println("  /dev/shm of one machine: " + prediction.shmBytesPerNode() + " B");
      if (measured != null) {
        context.out().println();
        context.out().print(measured);
      }
    }
    return ExitCode.OK.number();
  }

  private MemoryQuery query() {
    Backend named = Backend.ofLabel(backend);
    if (named == Backend.AUTO) {
      named = measure ? Device.get(Backend.AUTO, 0).backend() : Backend.CUDA;
    }
    MemoryQuery query = measure ? MemoryMeasurement.query(named, threads) : MemoryQuery.of(named);
    return given(query.withEnvironment(context.environment()));
  }

  private MemoryQuery given(MemoryQuery query) {
    MemoryQuery changed = query;
    for (Lever lever : Lever.values()) {
      OptionSpec option = spec.findOption("--" + lever.label());
      String text = option.getValue();
      if (text != null) {
        changed = changed.with(lever, number(lever, text));
      }
    }
    return changed;
  }

  private static long number(Lever lever, String text) {
    try {
      return switch (lever) {
        case NVLS, P2P, SHM, CUMEM_HOST, RUNTIME_CONNECT -> flag(lever, text);
        case BUFFSIZE, LL_BUFFSIZE, LL128_BUFFSIZE, NVLS_CHUNKSIZE, WORK_FIFO, FIFO ->
            ByteSize.parse(text);
        case ARCH -> Long.parseLong(text.toLowerCase(Locale.ROOT).replaceFirst("^sm_?", ""));
        case NCCL -> MemoryMeasurement.version(text);
        default -> Long.parseLong(text);
      };
    } catch (NumberFormatException e) {
      throw new InvalidArgumentException(
          "--" + lever.label() + " is '" + text + "'", "use a number; see --help");
    }
  }

  private static long flag(Lever lever, String text) {
    return switch (text) {
      case "on" -> 1;
      case "off" -> 0;
      default ->
          throw new InvalidArgumentException(
              "--" + lever.label() + " is '" + text + "'", "use on or off");
    };
  }
}

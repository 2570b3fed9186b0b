package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.machine.ByteSize;
import io.nccl4j.bench.output.MemoryJson;
import io.nccl4j.bench.run.MemoryMeasurement;
import io.nccl4j.cli.options.OptionRange;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.Locale;
import picocli.CommandLine.Command;
import picocli.CommandLine.Mixin;
import picocli.CommandLine.Model.CommandSpec;
import picocli.CommandLine.Model.OptionSpec;
import picocli.CommandLine.Option;

/** {@code nccl4j memory}: what a communicator will take, and what it takes. */
@Command(
    name = "memory",
    description =
        "Predicts how much memory a rank of a communicator takes, and measures it on request.",
    footer = {
      "",
      "Without --measure, no library is loaded and no communicator is created. NCCL's environment",
      "variables are honored; options override them.",
      "Exit code: 0 success, 1 internal error, 2 bad option, 3 failure, 4 timeout."
    })
final class MemoryCommand extends Subcommand {
  @Option(
      names = "--backend",
      paramLabel = "NAME",
      defaultValue = "auto",
      description =
          "host, cuda or auto; auto predicts for cuda, and measures what can be used; default"
              + " ${DEFAULT-VALUE}.")
  private String backend;

  @Mixin private final CommandSpec levers = CommandSpec.create();

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
    super(context);
    add(Lever.NRANKS, "N", "Ranks of the communicator; default 8, or -t with --measure.");
    add(Lever.RANKS_PER_NODE, "N", "Ranks on one machine; default all.");
    add(Lever.RANKS_PER_PROCESS, "N", "Ranks that are threads of one process; default 1.");
    add(Lever.ARCH, "SM", "Compute capability of the GPUs, for example sm90; default sm90.");
    add(Lever.NCCL, "VERSION", "NCCL's release, for example 2.19; default 2.30.7.");
    add(Lever.PEERS, "N", "Peers with which a rank exchanges messages; default 0.");
    add(Lever.SEND_PEERS, "N", "Further peers, to which it only sends; default 0.");
    add(Lever.RECEIVE_PEERS, "N", "Further peers, from which it only receives; default 0.");
    add(Lever.CHANNELS, "N", "Channels of collectives; default as between GPUs with NVLink.");
    add(Lever.MIN_CTAS, "N", "NCCL's minCTAs; default 1.");
    add(Lever.MAX_CTAS, "N", "NCCL's maxCTAs; default 64.");
    add(
        Lever.PEER_CHANNELS,
        "N",
        "Channels to each peer of sends and receives; default by NCCL's rule.");
    add(Lever.MAX_P2P_PEERS, "N", "NCCL's maxP2pPeers; default nranks.");
    add(Lever.BUFFSIZE, "SIZE", "Buffer of the protocol Simple; default 4M.");
    add(Lever.LL_BUFFSIZE, "SIZE", "Buffer of the protocol LL; default 512K.");
    add(Lever.LL128_BUFFSIZE, "SIZE", "Buffer of the protocol LL128; default 4800K.");
    add(Lever.NVLS, "on|off", "Whether multicast is used; default on.");
    add(Lever.NVLS_CHANNELS, "N", "Channels of NVLS; default by NCCL's rule.");
    add(Lever.NVLS_CHUNKSIZE, "SIZE", "Chunk of NVLS; default 128K.");
    add(Lever.P2P, "on|off", "Whether GPUs reach each other; default on.");
    add(Lever.SHM, "on|off", "Whether shared memory may be used; default on.");
    add(Lever.TREES, "on|off", "Whether NCCL may choose trees; default where its model could.");
    add(Lever.CUMEM_HOST, "on|off", "Whether CUDA shares host memory; default on from 2.24.");
    add(
        Lever.RUNTIME_CONNECT,
        "on|off",
        "Whether NCCL connects at the first collective; default on.");
    add(Lever.WORK_FIFO, "SIZE", "NCCL's work FIFO; default 1M, up to 2.21 32M.");
    add(Lever.FIFO, "SIZE", "nccl4j's work FIFO; default 1M.");
  }

  /** An option for a lever; the help shows them in this order. */
  private void add(Lever lever, String values, String description) {
    levers.addOption(
        OptionSpec.builder("--" + lever.label())
            .type(String.class)
            .paramLabel(values)
            .description(description)
            .build());
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
        case NVLS, P2P, SHM, TREES, CUMEM_HOST, RUNTIME_CONNECT -> flag(lever, text);
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

package io.nccl4j.cli.options;

import io.nccl4j.Backend;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.options.DeviceImplementation;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.cuda.NcclOptions;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import picocli.CommandLine.Option;

/** Options of a benchmark: how many ranks there are, on what, and how they are set up. */
public final class RankOptions {
  @Option(
      names = "--procs",
      order = 1,
      paramLabel = "N",
      defaultValue = "1",
      description = "Processes to start; default ${DEFAULT-VALUE}.")
  private int procs;

  @Option(
      names = {"-t", "--nthreads"},
      order = 2,
      paramLabel = "N",
      defaultValue = "1",
      description = "Threads per process; default ${DEFAULT-VALUE}.")
  private int threads;

  @Option(
      names = {"-g", "--ngpus"},
      order = 3,
      paramLabel = "N",
      defaultValue = "1",
      description = "Ranks per thread; default ${DEFAULT-VALUE}.")
  private int gpus;

  @Option(
      names = {"-p", "--parallel_init"},
      order = 12,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether each thread joins with its own ranks; default ${DEFAULT-VALUE}.")
  private int parallelInit;

  @Option(
      names = {"-y", "--stream_null"},
      order = 18,
      paramLabel = "0|1",
      defaultValue = "0",
      description = "Whether to use CUDA's default stream; default ${DEFAULT-VALUE}.")
  private int nullStream;

  @Option(
      names = {"-T", "--timeout"},
      order = 19,
      paramLabel = "SECONDS",
      defaultValue = "0",
      description =
          "Give up any wait after this time; 0 for the configured deadlines; default"
              + " ${DEFAULT-VALUE}.")
  private int timeout;

  @Option(
      names = {"-R", "--local_register"},
      order = 27,
      paramLabel = "0..2",
      defaultValue = "0",
      description =
          "How to register buffers with NCCL: 0 not at all, 1 on each rank, 2 as symmetric windows;"
              + " default ${DEFAULT-VALUE}.")
  private int registration;

  @Option(
      names = {"-x", "--cta_policy"},
      order = 28,
      paramLabel = "0..2",
      description =
          "NCCL's policy for CTAs: 0 its usual one, 1 efficiency, 2 no CTAs where possible; by"
              + " default what NCCL chooses.")
  private @Nullable Integer ctaPolicy;

  @Option(
      names = {"-D", "--device_implementation"},
      order = 29,
      paramLabel = "0..4",
      defaultValue = "0",
      description =
          "Measure kernels of allreduce or alltoall that communicate by themselves: 1 through"
              + " memory; 2 the same, 16 bytes at a time; 3 and 4 by multicast for allreduce,"
              + " through the network for alltoall. They need -R 2. 0 measures NCCL's operations;"
              + " default ${DEFAULT-VALUE}.")
  private int deviceImplementation;

  @Option(
      names = {"-V", "--device_cta_count"},
      order = 30,
      paramLabel = "N",
      defaultValue = "16",
      description = "CTAs of those kernels on each rank, up to 128; default ${DEFAULT-VALUE}.")
  private int deviceCtas;

  @Option(
      names = "--algo",
      order = 36,
      paramLabel = "NAME",
      description =
          "Force an algorithm: on host one that info --tuning shows; on cuda the value of"
              + " NCCL_ALGO.")
  private @Nullable String algorithm;

  @Option(
      names = "--proto",
      order = 37,
      paramLabel = "NAME",
      description = "Force a protocol likewise; on cuda the value of NCCL_PROTO.")
  private @Nullable String protocol;

  @Option(
      names = "--backend",
      order = 35,
      paramLabel = "NAME",
      defaultValue = "auto",
      description = "auto, host or cuda; auto uses GPUs where possible; default ${DEFAULT-VALUE}.")
  private String backend;

  /** Processes that the user asked for. */
  public int procs() {
    return procs;
  }

  /**
   * Adds what the options say.
   *
   * @throws InvalidArgumentException if one is out of range, or not supported
   */
  public void addTo(Options.Builder builder, Map<String, String> environment) {
    builder
        .threads(threads)
        .gpus(gpus)
        .backend(Backend.ofLabel(backend))
        .setup(setup().with(environment).forcing(algorithm, protocol));
  }

  private Setup setup() {
    return new Setup(
        OptionRange.yes("parallel_init", parallelInit),
        OptionRange.yes("stream_null", nullStream),
        timeout,
        Setup.Registration.values()[OptionRange.upTo("local_register", registration, 2)],
        ctaPolicy == null
            ? null
            : NcclOptions.CtaPolicy.values()[OptionRange.upTo("cta_policy", ctaPolicy, 2)],
        new DeviceImplementation(deviceImplementation, deviceCtas));
  }
}

package io.nccl4j.internal.cuda.memory;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.MemoryPolicy;
import io.nccl4j.bindings.Processes;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.cuda.NcclOptions.Option;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.memory.Budget;
import io.nccl4j.internal.memory.Budget.Decision;
import io.nccl4j.internal.memory.Budget.Limit;
import io.nccl4j.internal.memory.Budget.Step;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.ArrayList;
import java.util.Collections;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * Whether a communicator fits, before NCCL is asked to make it, and what NCCL is told so that it
 * does. NCCL reads whether to use NVLS from the process's environment, once.
 */
public final class CudaBudget {
  /**
   * What was decided.
   *
   * @param config what NCCL is told
   * @param prediction what the communicator will take; null if nothing was looked at
   */
  public record Plan(CommunicatorConfig config, @Nullable MemoryPrediction prediction) {}

  private static final Logger LOG = LogManager.getLogger(CudaBudget.class);
  private static final int FIRST_WITH_NVLS_CTAS = Option.NVLS_CTAS.version();
  private static final int OLDEST_ARCH = 70;
  private static final int NEWEST_ARCH = 129;
  private static final int USUAL_NODE = 8;

  private static boolean started;
  private static boolean nvlsOff;

  private final List<DeviceMemory> devices;
  private final List<DeviceMemory> asked;
  private final CommunicatorConfig config;
  private final String what;
  private final MemoryQuery query;
  private final boolean first;

  /**
   * A question.
   *
   * @param devices of this process's ranks, each on the device with its index
   * @param asked those of them whose memory is looked at
   */
  private CudaBudget(
      List<DeviceMemory> devices,
      List<DeviceMemory> asked,
      int nranks,
      CommunicatorConfig config,
      String what) {
    this.devices = devices;
    this.asked = asked;
    this.config = config;
    this.what = what;
    this.query = query(nranks);
    this.first = devices.stream().allMatch(device -> device.heap().isEmpty());
  }

  /**
   * Decides for the ranks of one call; each is on the device with its index.
   *
   * @throws MemoryBudgetException if it does not fit
   */
  public static synchronized Plan plan(
      List<DeviceMemory> devices, int nranks, CommunicatorConfig config, String name) {
    Plan plan =
        config.memoryPolicy() == MemoryPolicy.OFF
            ? new Plan(config, null)
            : new CudaBudget(devices, devices, nranks, config, "communicator " + name).decide();
    started = true;
    return plan;
  }

  /**
   * Decides for one rank of a communicator that is made of another one.
   *
   * @param devices of the parent's ranks of this process
   * @param nranks of the child at most
   * @param what for messages
   * @throws MemoryBudgetException if it does not fit
   */
  public static synchronized Plan planChild(
      DeviceMemory device,
      List<DeviceMemory> devices,
      int nranks,
      CommunicatorConfig config,
      String what) {
    return config.memoryPolicy() == MemoryPolicy.OFF
        ? new Plan(config, null)
        : new CudaBudget(devices, List.of(device), nranks, config, what).decide();
  }

  /** What a rank of a child takes, whose number of ranks is known. */
  public static synchronized MemoryPrediction predictChild(
      DeviceMemory device, List<DeviceMemory> devices, int nranks, CommunicatorConfig config) {
    CudaBudget budget = new CudaBudget(devices, List.of(device), nranks, config, "");
    return budget.predict(budget.query);
  }

  private MemoryPrediction predict(MemoryQuery asked) {
    return CudaMemory.predict(asked, first);
  }

  private MemoryQuery query(int nranks) {
    Gpu gpu = devices.getFirst().gpu();
    int seen = CudaLibraries.deviceCount();
    // A process that sees one GPU is one of many on its machine, as a rule.
    int node = Math.min(nranks, seen > 1 ? seen : USUAL_NODE);
    int here = Math.min(nranks, devices.size());
    boolean shared = devices.stream().distinct().count() < devices.size();
    MemoryQuery start = MemoryQuery.of(Backend.CUDA);
    MemoryQuery known =
        (shared && devices.stream().distinct().count() == 1 ? start.onOneGpu() : start)
            .with(Lever.NRANKS, nranks)
            .with(Lever.RANKS_PER_NODE, Math.max(here, node))
            .with(Lever.RANKS_PER_PROCESS, here)
            .with(Lever.NCCL, CudaLibraries.ncclVersion())
            .with(Lever.ARCH, Math.clamp(gpu.capability(), OLDEST_ARCH, NEWEST_ARCH))
            .with(Lever.P2P, seen > 1 && gpu.peers().isEmpty() ? 0 : 1)
            .with(config)
            .withEnvironment(System.getenv());
    boolean multicast =
        gpu.attribute(Cuda.CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED()) != 0
            || "1".equals(System.getenv(Lever.NVLS.variable()));
    return nvlsOff || shared || !multicast ? known.with(Lever.NVLS, 0) : known;
  }

  private List<Limit> limits() {
    List<Limit> limits = new ArrayList<>();
    if (config.memoryBudget() != CommunicatorConfig.NO_BUDGET) {
      limits.add(new Limit("memory-budget", config.memoryBudget(), true));
    }
    for (DeviceMemory device : asked) {
      int ranks = Collections.frequency(devices, device);
      long budget = Device.memoryBudget();
      if (budget != CommunicatorConfig.NO_BUDGET) {
        long left = budget - device.takenBytes();
        limits.add(new Limit("what is left of the budget of " + device, left / ranks, true));
      }
      long free = device.gpu().freeBytes();
      if (free >= 0) {
        limits.add(new Limit("the free memory of " + device, free / ranks, false));
      }
    }
    return limits;
  }

  private Plan decide() {
    Decision decision =
        Budget.decide(
            what,
            query,
            this::predict,
            MemoryPlace.DEVICE,
            limits(),
            config.memoryPolicy(),
            steps());
    Limit exceeded = decision.exceeded();
    sayRoom(decision);
    if (exceeded == null) {
      return new Plan(config, decision.prediction());
    }
    List<String> done = new ArrayList<>();
    if (decision.query().value(Lever.NVLS) != query.value(Lever.NVLS)) {
      Processes.setenv(Lever.NVLS.variable(), "0");
      nvlsOff = true;
      done.add("NVLS is off for this process (" + Lever.NVLS.variable() + "=0)");
    }
    Map<Option, Integer> options = new EnumMap<>(Option.class);
    lower(decision, Lever.NVLS_CHANNELS, Option.NVLS_CTAS, options);
    lower(decision, Lever.MAX_CTAS, Option.MAX_CTAS, options);
    options.forEach((option, value) -> done.add(option.label() + " is " + value));
    LOG.warn(
        "{} would take {} B a rank, and {} is {} B: {}; it will take {} B{}",
        what,
        decision.first(),
        exceeded.name(),
        exceeded.bytes(),
        done.isEmpty() ? "nothing can be lowered" : String.join(", ", done),
        decision.prediction().bytes(MemoryPlace.DEVICE),
        decision.fits() ? "" : ", which may be too much");
    return new Plan(lowered(options), decision.prediction());
  }

  private CommunicatorConfig lowered(Map<Option, Integer> options) {
    return options.isEmpty()
        ? config
        : config.toBuilder().with(NcclOptions.of(config).with(options, "memory-policy")).build();
  }

  /** Sends and receives come on top of what was decided. */
  private void sayRoom(Decision decision) {
    if (config.memoryBudget() != CommunicatorConfig.NO_BUDGET) {
      long bytes = decision.prediction().bytes(MemoryPlace.DEVICE);
      long peer = predict(decision.query().with(Lever.PEERS, 1)).bytes(MemoryPlace.DEVICE) - bytes;
      long peers = query.value(Lever.NRANKS) - 1;
      long room = peer == 0 ? peers : (config.memoryBudget() - bytes) / peer;
      if (room < peers) {
        LOG.info(
            "{}: memory-budget leaves room for sends and receives with {} of {} peers, {} B each",
            what,
            room,
            peers,
            peer);
      }
    }
  }

  private void lower(Decision decision, Lever lever, Option option, Map<Option, Integer> options) {
    long value = decision.query().value(lever);
    if (value != query.value(lever)) {
      options.put(option, (int) value);
    }
  }

  /**
   * What may be lowered: nothing that the user has set. {@code maxP2pPeers} is not among it: in
   * NCCL 2.30 fewer peers mean more channels, and so more memory, for each.
   */
  private List<Step> steps() {
    List<Step> steps = new ArrayList<>();
    if (!started && isFree(Lever.NVLS, null)) {
      steps.add(Budget.set(Lever.NVLS, 0));
    } else if (CudaLibraries.ncclVersion() >= FIRST_WITH_NVLS_CTAS
        && query.value(Lever.NVLS) != 0
        && isFree(Lever.NVLS_CHANNELS, Option.NVLS_CTAS)) {
      steps.add(Budget.halve(Lever.NVLS_CHANNELS, 32, 1));
    }
    if (isFree(Lever.MAX_CTAS, Option.MAX_CTAS)) {
      steps.add(Budget.halve(Lever.MAX_CTAS, 32, query.value(Lever.MIN_CTAS)));
    }
    return steps;
  }

  private boolean isFree(Lever lever, @Nullable Option option) {
    String variable = System.getenv(lever.variable());
    return (variable == null || variable.isEmpty())
        && (option == null || !NcclOptions.of(config).isSet(option));
  }
}

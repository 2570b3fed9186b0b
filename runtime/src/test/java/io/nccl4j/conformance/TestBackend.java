package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.bindings.Ucp;
import io.nccl4j.internal.cuda.StandIn;
import io.nccl4j.internal.net.NetworkConfig.Security;
import io.nccl4j.property.Seed;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Assumptions;

/** What the tests run on: the system properties nccl4j.test.backend and nccl4j.test.seed. */
final class TestBackend {
  static final Backend BACKEND =
      Backend.ofLabel(System.getProperty("nccl4j.test.backend", Backend.HOST.label()));

  /** Whether the libraries are stand-ins, which any machine can run. */
  private static final boolean STAND_IN = Boolean.getBoolean("nccl4j.test.standin");

  static {
    System.out.println(
        "conformance: backend " + BACKEND.label() + ", nccl4j.test.seed=" + Seed.VALUE);
    if (BACKEND == Backend.CUDA && STAND_IN) {
      StandIn standIn = StandIn.require();
      System.setProperty("nccl4j.cuda.library", standIn.cuda().toString());
      System.setProperty("nccl4j.nccl.library", standIn.nccl().toString());
      // Each of its devices is a thread, which ranks that spin would keep from running.
      System.setProperty("nccl4j.wait", "sleep");
    }
  }

  static final long SEED = Seed.VALUE;

  /** The hosts of the ranks, a pattern that goes on: 0,0,1,1 for example. One host without it. */
  private static final String HOSTS = System.getProperty("nccl4j.test.hosts", "0");

  /** How hosts reach each other: memory, netty, tls, which is netty, too, or ucx. */
  private static final String NETWORK = System.getProperty("nccl4j.test.network", "memory");

  /** Fails what hangs long before a test's own time is over. */
  static final CommunicatorConfig CONFIG =
      CommunicatorConfig.builder()
          .initTimeout(Duration.ofSeconds(30))
          .operationTimeout(Duration.ofSeconds(20))
          .closeTimeout(Duration.ofSeconds(5))
          .build();

  private TestBackend() {}

  /** The device of a rank; ranks share devices where there are fewer. */
  static Device device(int rank) {
    return Device.get(BACKEND, BACKEND == Backend.HOST ? rank : rank % Device.all(BACKEND).size());
  }

  static Communicators communicators(int nranks) {
    return communicators(nranks, CONFIG);
  }

  static Communicators communicators(int nranks, CommunicatorConfig config) {
    requireRoomFor(nranks);
    int[] hostOf = hostOf(nranks);
    if (IntStream.of(hostOf).distinct().count() > 1) {
      return overHosts(hostOf, config, NETWORK);
    }
    List<Device> devices = IntStream.range(0, nranks).mapToObj(TestBackend::device).toList();
    Communicators communicators = Communicator.initAll(devices, config);
    if (BACKEND == Backend.CUDA) {
      connect(communicators);
    }
    return communicators;
  }

  /**
   * NCCL connects ranks at the first operation of each kind, which waits for all of them: tests
   * that drive several ranks from one thread without a group need it done before.
   */
  private static void connect(Communicators communicators) {
    int n = communicators.size();
    List<Stream> streams = new ArrayList<>();
    List<DeviceBuffer> buffers = new ArrayList<>();
    for (Communicator communicator : communicators) {
      streams.add(communicator.device().newStream());
      buffers.add(communicator.device().allocate(8L * n));
    }
    for (Case.Op op : new Case.Op[] {Case.Op.ALL_REDUCE, Case.Op.BROADCAST, Case.Op.RING}) {
      Group.run(
          () -> {
            for (Communicator communicator : communicators) {
              int rank = communicator.rank();
              DeviceBuffer buffer = buffers.get(rank);
              DeviceBuffer received = buffer.slice(4L * n);
              Stream stream = streams.get(rank);
              switch (op) {
                case ALL_REDUCE ->
                    communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
                case BROADCAST ->
                    communicator.broadcast(buffer, buffer, 1, DataType.INT32, 0, stream);
                default -> {
                  for (int peer = 0; peer < n; peer++) {
                    communicator.send(buffer.slice(0, 4), 1, DataType.INT32, peer, stream);
                    communicator.recv(received.slice(4L * peer), 1, DataType.INT32, peer, stream);
                  }
                }
              }
            }
          });
    }
    // Closing alone would give up what takes longer than the close timeout of the test.
    streams.forEach(Stream::synchronize);
    streams.forEach(Stream::close);
    buffers.forEach(DeviceBuffer::close);
  }

  /** Ranks of this process that take each other for ranks of these hosts. */
  static Communicators overHosts(int[] hostOf, CommunicatorConfig config, String network) {
    return SpanRanks.join(
        hostOf,
        config,
        switch (network) {
          case "memory" -> SpanRanks.inMemory(SEED);
          case "netty" -> SpanRanks.network("netty", Security.AUTH);
          case "tls" -> SpanRanks.network("netty", Security.TLS);
          case "ucx" -> SpanRanks.network("ucx", Security.TRUSTED);
          default -> throw new IllegalArgumentException(network);
        });
  }

  private static int[] hostOf(int nranks) {
    int[] pattern = Arrays.stream(HOSTS.split(",")).mapToInt(Integer::parseInt).toArray();
    return IntStream.range(0, nranks).map(r -> pattern[r % pattern.length]).toArray();
  }

  /** Skips a test, saying so, of what ranks of one host know of each other. */
  static void requireOneHost(String reason) {
    Assumptions.assumeTrue(HOSTS.equals("0"), reason);
  }

  /** Gives what one rank says time to come to other hosts; on one host all see it at once. */
  static void awaitOtherHosts(BooleanSupplier condition) {
    if (!HOSTS.equals("0")) {
      boolean ignored = eventually(condition);
    }
  }

  /** Skips a test, saying so, on real GPUs. */
  static void requireNoGpus(String reason) {
    Assumptions.assumeFalse(hasGpus(), reason);
  }

  /** Whether the ranks run on real GPUs. */
  static boolean hasGpus() {
    return BACKEND == Backend.CUDA && !STAND_IN;
  }

  /** Skips a test, saying so, of what only the host engine promises. */
  static void requireHost(String reason) {
    Assumptions.assumeTrue(BACKEND == Backend.HOST, reason);
  }

  /** Skips a test, saying so, of an engine that this machine does not have. */
  static void requireNetwork(String network) {
    String reason = network.equals("ucx") ? Ucp.unavailableReason() : "";
    Assumptions.assumeTrue(reason.isEmpty(), reason);
  }

  /**
   * Whether a rank may launch a graph where another one calls plainly: NCCL registers buffers of
   * graphs, unless told not to, and moves them in another way then.
   */
  static boolean mixesGraphsWithCalls() {
    return !hasGpus() || "0".equals(System.getenv("NCCL_GRAPH_REGISTER"));
  }

  /** How many ranks a communicator may have here. */
  static int maxRanks() {
    if (BACKEND == Backend.HOST) {
      return Integer.MAX_VALUE;
    }
    int perDevice = "1".equals(System.getenv("NCCL_MULTI_RANK_GPU_ENABLE")) ? 2 : 1;
    return Device.all(BACKEND).size() * perDevice;
  }

  /** Skips a test, saying so, that needs more ranks than this machine can have. */
  static void requireRoomFor(int nranks) {
    Assumptions.assumeTrue(
        nranks <= maxRanks(),
        () -> nranks + " ranks are more than the GPUs of this machine take: " + maxRanks());
  }

  /** Asks again and again, for at most five seconds. */
  static boolean eventually(BooleanSupplier condition) {
    long start = System.nanoTime();
    while (!condition.getAsBoolean()) {
      if (System.nanoTime() - start > 5_000_000_000L) {
        return false;
      }
      LockSupport.parkNanos(100_000);
    }
    return true;
  }
}

package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Launch;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.ReduceOp;
import io.nccl4j.SpanRanks;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.WarmUp;
import io.nccl4j.internal.net.NetworkConfig;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;

/**
 * A process with one rank that does what its standard input says, a command a line, and answers
 * each with a line:
 *
 * <pre>
 * join ID NRANKS RANK    joined | failed …
 * launch                 joined | failed …: as the environment says
 * little BYTES           little: budget of what is joined next
 * threads                threads | failed …: ranks that are threads, by initAll and by id
 * loop COUNT             looping …, then failed …: sums of COUNT ints until something goes wrong
 * replay COUNT ROUNDS    replaying, replayed WRONG | failed …: launches of one sum
 * wait RANK              waiting, then failed …: a receive from a rank that sends nothing
 * sum COUNT SALT         summed WRONG | failed …: one sum, see LateRankTest
 * trials COUNT SALT      agreed HASH | failed …: every operation, buffers of mixed kinds
 * warm ITERATIONS        warm: a warm-up with everything, see warmUp
 * hosts                  hosts …: which ranks share a host, and what is between them
 * splits COUNT           split: one communicator after the other
 * churn COUNT            churned …: communicators split and closed at once; what went wrong
 * split COLOR            split | failed …
 * dividing               dividing, then failed …: one split after the other
 * held                   held: notes what this process holds
 * same                   same HELD | more …: whether it holds no more than then
 * survive MILLIS         left RANK of NRANKS | failed …: goes on with those that are left
 * close                  closed
 * exit                   none
 * </pre>
 *
 * <p>{@code failed} is followed by the clock in ns, the exception, the lost rank or −1, and the
 * message.
 */
final class RankMain {
  private CommunicatorConfig config = HostRanks.patient().build();
  private Communicator communicator;
  private Stream stream;
  private Held held;

  private RankMain() {}

  public static void main(String[] arguments) throws IOException {
    RankMain rank = new RankMain();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ready");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      if (words[0].equals("exit")) {
        return;
      }
      try {
        System.out.println(rank.run(words));
      } catch (NcclException e) {
        long now = System.nanoTime();
        int lost = e instanceof PeerFailedException peer ? peer.rank() : -1;
        String kind = e.getClass().getSimpleName();
        System.out.println("failed " + now + " " + kind + " " + lost + " " + e.getMessage());
      }
    }
  }

  private String run(String[] words) {
    return switch (words[0]) {
      case "join" -> {
        join(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
        yield "joined";
      }
      case "launch" -> {
        Launch launch = Launch.detect().orElseThrow();
        Device device = Device.get(Backend.HOST, launch.firstRank(1));
        communicator = launch.initRank(device, config);
        stream = device.newStream();
        yield "joined";
      }
      case "little" -> {
        config = HostRanks.patient().memoryBudget(Long.parseLong(words[1])).build();
        yield "little";
      }
      case "threads" -> {
        threads();
        yield "threads";
      }
      case "loop" -> {
        loop(Integer.parseInt(words[1]));
        yield "never";
      }
      case "replay" -> {
        yield "replayed " + replay(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
      }
      case "wait" -> {
        waitFor(Integer.parseInt(words[1]));
        yield "never";
      }
      case "sum" -> {
        int salt = Integer.parseInt(words[2]);
        yield "summed "
            + LateRankTest.sum(communicator, stream, Integer.parseInt(words[1]), salt, () -> {});
      }
      case "trials" -> "agreed " + trials(Integer.parseInt(words[1]), Integer.parseInt(words[2]));
      case "warm" -> {
        communicator.warmUp(warmUp(Integer.parseInt(words[1])));
        yield "warm";
      }
      case "hosts" -> "hosts " + hosts();
      case "splits" -> {
        splits(communicator, stream, Integer.parseInt(words[1]));
        yield "split";
      }
      case "churn" ->
          "churned " + SplitAndCloseTest.churn(communicator, Integer.parseInt(words[1]));
      case "dividing" -> {
        System.out.println("dividing");
        while (true) {
          communicator.split(0, 0).close();
        }
      }
      case "split" -> {
        communicator.split(Integer.parseInt(words[1]), 0);
        yield "split";
      }
      case "held" -> {
        held = Held.now();
        yield "held";
      }
      case "same" -> same();
      case "survive" -> {
        Communicator failed = communicator;
        communicator = failed.survivors(Duration.ofMillis(Long.parseLong(words[1])));
        stream.close();
        stream = communicator.device().newStream();
        failed.close();
        yield "left " + communicator.rank() + " of " + communicator.nranks();
      }
      case "close" -> {
        stream.close();
        communicator.close();
        yield "closed";
      }
      default -> throw new IllegalArgumentException(words[0]);
    };
  }

  /** Of the communicator, of one split off that spans the hosts, and of one that does not. */
  private String hosts() {
    try (Communicator odd = communicator.split(communicator.rank() % 2, 0);
        Communicator half =
            communicator.split(communicator.hosts().orElseThrow().hostOf(communicator.rank()), 0)) {
      return communicator.hosts().orElseThrow()
          + " "
          + odd.hosts().orElseThrow()
          + " "
          + half.hosts().orElseThrow();
    }
  }

  private String same() {
    try {
      Held.assertNoMoreThan(held);
      return "same " + held;
    } catch (AssertionError e) {
      return "more " + e.getMessage();
    }
  }

  private void join(String id, int nranks, int rank) {
    Device device = Device.get(Backend.HOST, rank);
    communicator = Communicator.initRank(device, nranks, UniqueId.parse(id), rank, config);
    stream = device.newStream();
  }

  private static void threads() {
    trials(Communicator.initAll(Backend.HOST, 2));
    UniqueId id = UniqueId.create(Backend.HOST);
    CompletableFuture<Communicator> one =
        Communicator.initRankAsync(
            Device.get(Backend.HOST, 1), 2, id, 1, HostRanks.patient().build());
    try (Communicator zero =
            Communicator.initRank(
                Device.get(Backend.HOST, 0), 2, id, 0, HostRanks.patient().build());
        Communicator other = one.join()) {
      if (zero.nranks() != other.nranks()) {
        throw new AssertionError("other sizes");
      }
    }
    trials(
        SpanRanks.join(
            new int[] {0, 1},
            HostRanks.patient().build(),
            SpanRanks.network("netty", NetworkConfig.Security.AUTH)));
  }

  /** By threads of this process, whose ranks it closes. */
  private static void trials(Communicators all) {
    try (Communicators ranks = all) {
      ranks.run(
          c -> {
            try (Stream stream = c.device().newStream()) {
              System.out.println("agreed " + trials(c, stream, 1000, 1));
            }
          });
    } catch (NcclException e) {
      throw e;
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private void loop(int count) {
    try (DeviceBuffer in = communicator.device().allocate(DataType.INT32, count);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, count)) {
      try {
        for (int i = 0; ; i++) {
          communicator.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
          stream.synchronize();
          if (i == 20) {
            System.out.println("looping");
          }
        }
      } finally {
        // What failed is dropped when the stream is closed; only then may the buffers go.
        stream.close();
      }
    }
  }

  private int replay(int count, int rounds) {
    int[] values = new int[count];
    LateRankTest.fill(values, communicator.rank(), 1);
    try (DeviceBuffer in = communicator.device().allocate(DataType.INT32, count);
        DeviceBuffer out = communicator.device().allocate(DataType.INT32, count)) {
      in.copyFrom(values);
      stream.beginCapture();
      communicator.allReduce(in, out, count, DataType.INT32, ReduceOp.SUM, stream);
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        for (int i = 0; i < rounds; i++) {
          executable.launch(stream);
          stream.synchronize();
          if (i == 20) {
            System.out.println("replaying");
          }
        }
      } catch (NcclException e) {
        stream.close();
        throw e;
      }
      out.copyTo(values);
    }
    return LateRankTest.wrong(values, communicator.nranks(), 1);
  }

  private void waitFor(int rank) {
    try (DeviceBuffer buffer = communicator.device().allocate(DataType.INT32, 1)) {
      try {
        communicator.recv(buffer, 1, DataType.INT32, rank, stream);
        System.out.println("waiting");
        stream.synchronize();
      } finally {
        stream.close();
      }
    }
  }

  /** Whether a rank's send (0) or receive (1) buffer is private to its process. */
  static boolean isPrivate(int rank, int which, int salt) {
    return (rank * 2 + which + salt) % 3 == 0;
  }

  /** All operations, plain and captured, in shared and in private memory, staged pieces too. */
  static WarmUp warmUp(int iterations) {
    return WarmUp.builder()
        .sizes(0, 8, 600, 5000, 3 << 20)
        .captured(true)
        .wrapped(true)
        .iterations(iterations)
        .build();
  }

  static void splits(Communicator communicator, Stream stream, int count) {
    for (int i = 0; i < count; i++) {
      Communicator part = communicator.split(0, 0);
      part.barrier(stream);
      stream.synchronize();
      part.close();
    }
  }

  private int trials(int count, int salt) {
    return trials(communicator, stream, count, salt);
  }

  /** Every operation with every mixture of shared and private buffers. */
  static int trials(Communicator communicator, Stream stream, int count, int salt) {
    int hash = 0;
    int rank = communicator.rank();
    for (Trial.Op op : Trial.Op.values()) {
      for (int s = salt; s < salt + 4; s++) {
        Trial trial = new Trial(op, communicator.nranks(), rank, count, s);
        try (Arena arena = Arena.ofShared()) {
          run(communicator, stream, arena, trial);
        }
        hash = hash * 31 + op.ordinal();
      }
    }
    return hash;
  }

  private static void run(Communicator communicator, Stream stream, Arena arena, Trial trial) {
    int rank = trial.rank();
    DeviceBuffer in =
        buffer(communicator, arena, trial.inputLength(), isPrivate(rank, 0, trial.salt()));
    DeviceBuffer out =
        buffer(communicator, arena, trial.outputLength(), isPrivate(rank, 1, trial.salt()));
    try {
      trial.prepare(in, out);
      trial.issue(communicator, in, out, stream);
      stream.synchronize(Duration.ofSeconds(30));
      trial.check(out);
    } finally {
      in.close();
      out.close();
    }
  }

  private static DeviceBuffer buffer(
      Communicator communicator, Arena arena, int length, boolean isPrivate) {
    long bytes = (long) length * Integer.BYTES;
    if (!isPrivate) {
      return communicator.device().allocate(bytes);
    }
    MemorySegment segment = arena.allocate(bytes + 64, 64);
    return communicator.device().wrap(segment.asSlice(4, bytes));
  }
}

package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;

/**
 * A process with one rank, on the libraries that it finds, that does what its standard input says,
 * a command a line, and answers each with a line:
 *
 * <pre>
 * id                           id ID
 * join ID NRANKS RANK MILLIS   joined: with that deadline of operations
 * split COLOR                  split RANK: what follows is of the child
 * sums COUNT                   summing, summed | failed …: that many sums, each waited for
 * recv RANK                    receiving, then failed …: from a rank that sends nothing
 * abort                        aborted
 * close                        closed
 * </pre>
 *
 * <p>{@code failed} is followed by the exception, its ranks, and the message.
 */
final class CudaRankMain {
  private static final int COUNT = 64;

  private Communicator communicator;
  private Stream stream;
  private DeviceBuffer buffer;

  private CudaRankMain() {}

  public static void main(String[] arguments) throws IOException {
    CudaRankMain rank = new CudaRankMain();
    BufferedReader in =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    System.out.println("ready");
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      try {
        System.out.println(rank.run(line.split(" ")));
      } catch (NcclException e) {
        String ranks = e.failedRanks().toString().replace(" ", "");
        System.out.println(
            "failed " + e.getClass().getSimpleName() + " " + ranks + " " + e.getMessage());
      }
    }
  }

  /** Ranks may join on threads of either kind; a virtual one can do less. */
  private static Communicator onVirtualThread(Callable<Communicator> join) {
    FutureTask<Communicator> task = new FutureTask<>(join);
    Thread.ofVirtual().start(task);
    try {
      return task.get();
    } catch (ExecutionException e) {
      throw e.getCause() instanceof NcclException cause ? cause : new IllegalStateException(e);
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }

  private String run(String[] words) {
    return switch (words[0]) {
      case "id" -> "id " + UniqueId.create(Backend.CUDA);
      case "join" -> {
        int rank = Integer.parseInt(words[3]);
        Device device = Device.get(Backend.CUDA, rank % Device.all(Backend.CUDA).size());
        Callable<Communicator> join =
            () ->
                Communicator.initRank(
                    device,
                    Integer.parseInt(words[2]),
                    UniqueId.parse(words[1]),
                    rank,
                    CommunicatorConfig.builder()
                        .operationTimeout(Duration.ofMillis(Long.parseLong(words[4])))
                        .closeTimeout(Duration.ofSeconds(2))
                        .build());
        communicator = onVirtualThread(join);
        stream = device.newStream();
        buffer = device.allocate(DataType.INT32, COUNT);
        yield "joined";
      }
      case "split" -> {
        communicator = communicator.split(Integer.parseInt(words[1]), communicator.rank());
        yield "split " + communicator.rank();
      }
      case "sums" -> {
        System.out.println("summing");
        for (int i = 0; i < Integer.parseInt(words[1]); i++) {
          communicator.allReduce(buffer, buffer, COUNT, DataType.INT32, ReduceOp.SUM, stream);
          stream.synchronize();
        }
        yield "summed";
      }
      case "recv" -> {
        System.out.println("receiving");
        int peer = Integer.parseInt(words[1]);
        communicator.recv(buffer, COUNT, DataType.INT32, peer, stream);
        stream.synchronize();
        yield "received";
      }
      case "abort" -> {
        communicator.abort();
        yield "aborted";
      }
      case "close" -> {
        communicator.close();
        yield "closed";
      }
      default -> throw new IllegalArgumentException(words[0]);
    };
  }
}

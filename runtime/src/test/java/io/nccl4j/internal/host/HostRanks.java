package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ThreadFactory;
import java.util.stream.IntStream;

/** The ranks of a communicator in this process, each with a stream and two buffers. */
final class HostRanks implements AutoCloseable {
  /** What one rank does. */
  interface Task {
    void run(int rank) throws Exception;
  }

  final Communicators communicators;
  final List<Stream> streams = new ArrayList<>();
  final List<DeviceBuffer> in = new ArrayList<>();
  final List<DeviceBuffer> out = new ArrayList<>();

  HostRanks(int nranks, long bytes) {
    this(nranks, bytes, patient().build());
  }

  HostRanks(int nranks, long bytes, CommunicatorConfig config) {
    List<Device> devices =
        IntStream.range(0, nranks).mapToObj(i -> Device.get(Backend.HOST, i)).toList();
    communicators = Communicator.initAll(devices, config);
    for (Communicator communicator : communicators) {
      streams.add(communicator.device().newStream());
      in.add(communicator.device().allocate(bytes));
      out.add(communicator.device().allocate(bytes));
    }
  }

  /**
   * Deadlines that no correct run on a busy machine comes near, and no test has to wait long for.
   */
  static CommunicatorConfig.Builder patient() {
    return CommunicatorConfig.builder()
        .initTimeout(Duration.ofSeconds(30))
        .operationTimeout(Duration.ofSeconds(30))
        .closeTimeout(Duration.ofSeconds(10));
  }

  int size() {
    return communicators.size();
  }

  HostCommunicator get(int rank) {
    return (HostCommunicator) communicators.get(rank);
  }

  /** Queues a sum of the first {@code count} ints of all ranks' {@code in}. */
  void sum(int rank, long count) {
    sum(rank, count, streams.get(rank));
  }

  void sum(int rank, long count, Stream stream) {
    get(rank).allReduce(in.get(rank), out.get(rank), count, DataType.INT32, ReduceOp.SUM, stream);
  }

  /** Queues one operation of a rank, after filling its buffers. */
  Trial start(Trial.Op op, int rank, int count, int salt) {
    Trial trial = new Trial(op, size(), rank, count, salt);
    trial.prepare(in.get(rank), out.get(rank));
    trial.issue(get(rank), in.get(rank), out.get(rank), streams.get(rank));
    return trial;
  }

  /** Runs a task per rank on threads of the given kind; throws what the first one threw. */
  void run(ThreadFactory threads, Task task) throws Exception {
    List<Throwable> failures = new ArrayList<>();
    List<Thread> started = new ArrayList<>();
    for (int r = 0; r < size(); r++) {
      int rank = r;
      Thread thread = threads.newThread(() -> runOne(task, rank, failures));
      thread.start();
      started.add(thread);
    }
    for (Thread thread : started) {
      thread.join();
    }
    if (!failures.isEmpty()) {
      throw new AssertionError("a rank failed", failures.getFirst());
    }
  }

  void run(Task task) throws Exception {
    run(Thread.ofPlatform().name("rank-", 0).factory(), task);
  }

  private void runOne(Task task, int rank, List<Throwable> failures) {
    try {
      task.run(rank);
    } catch (Throwable e) {
      synchronized (failures) {
        failures.add(e);
      }
      communicators.forEach(Communicator::abort);
    }
  }

  @Override
  public void close() {
    communicators.forEach(
        c -> {
          if (c.state() != Communicator.State.READY) {
            c.close();
          }
        });
    streams.forEach(Stream::close);
    communicators.close();
    in.forEach(DeviceBuffer::close);
    out.forEach(DeviceBuffer::close);
  }
}

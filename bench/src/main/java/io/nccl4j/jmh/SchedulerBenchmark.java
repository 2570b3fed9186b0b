package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * What an operation costs before and after its data move: the checks, the FIFO, the stream and the
 * wait, with one rank and nothing to communicate. With {@code -prof gc} it allocates nothing.
 */
public class SchedulerBenchmark extends HostBenchmark {
  /** Operations in a row. */
  static final int BATCH = 32;

  private Communicators communicators;
  private Communicator communicator;
  private Stream stream;
  private DeviceBuffer buffer;
  private DeviceBuffer received;

  /** Makes the one rank. */
  @Setup
  public void open() {
    Device.get(Backend.HOST, 0).bindThread();
    communicators = Communicator.initAll(Backend.HOST, 1);
    communicator = communicators.get(0);
    stream = communicator.device().newStream();
    buffer = communicator.device().allocate(DataType.FLOAT32, 1);
    received = communicator.device().allocate(DataType.FLOAT32, 1);
  }

  /** Closes it. */
  @TearDown
  public void close() {
    stream.close();
    communicators.close();
    buffer.close();
    received.close();
  }

  /** One barrier of one rank, submitted and waited for. */
  @Benchmark
  public void barrier() {
    communicator.barrier(stream);
    stream.synchronize();
  }

  /** One of several barriers that are submitted in a row and waited for together. */
  @Benchmark
  @OperationsPerInvocation(BATCH)
  public void queuedBarrier() {
    for (int i = 0; i < BATCH; i++) {
      communicator.barrier(stream);
    }
    stream.synchronize();
  }

  /** One allReduce of no elements, submitted and waited for. */
  @Benchmark
  public void emptyAllReduce() {
    communicator.allReduce(buffer, buffer, 0, DataType.FLOAT32, ReduceOp.SUM, stream);
    stream.synchronize();
  }

  /** One of several groups of a send to itself and its receive, submitted in a row. */
  @Benchmark
  @OperationsPerInvocation(BATCH)
  public void queuedExchange() {
    for (int i = 0; i < BATCH; i++) {
      try (Group group = Group.start()) {
        communicator.send(buffer, 1, DataType.FLOAT32, 0, stream);
        communicator.recv(received, 1, DataType.FLOAT32, 0, stream);
        group.launch();
      }
    }
    stream.synchronize();
  }

  /** Collectives so far. */
  long completed() {
    return communicator.counters().collectives() - communicator.counters().unfinishedWorks();
  }
}

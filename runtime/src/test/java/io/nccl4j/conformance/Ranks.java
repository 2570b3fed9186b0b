package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Communicators of one process with a stream and two buffers for each rank, for tests that drive
 * them by hand.
 */
final class Ranks implements AutoCloseable {
  /** Bytes of each buffer. */
  static final int BYTES = 1 << 20;

  final Communicators communicators;
  final List<Stream> streams = new ArrayList<>();
  final List<DeviceBuffer> in = new ArrayList<>();
  final List<DeviceBuffer> out = new ArrayList<>();

  Ranks(int nranks) {
    this(nranks, TestBackend.CONFIG);
  }

  Ranks(int nranks, CommunicatorConfig config) {
    this(TestBackend.communicators(nranks, config));
  }

  Ranks(Communicators all) {
    communicators = all;
    for (Communicator communicator : communicators) {
      streams.add(communicator.device().newStream());
      in.add(communicator.device().allocate(BYTES));
      out.add(communicator.device().allocate(BYTES));
    }
  }

  int size() {
    return communicators.size();
  }

  Communicator get(int rank) {
    return communicators.get(rank);
  }

  /** Fills the rank's first elements of {@code in}. */
  void put(int rank, int... values) {
    in.get(rank).copyFrom(values);
  }

  /** The first elements of {@code out} of a rank. */
  int[] got(int rank, int count) {
    int[] values = new int[count];
    out.get(rank).copyTo(values);
    return values;
  }

  /** A sum of {@code count} ints from {@code in} to {@code out} on the rank's stream. */
  void sum(int rank, int count) {
    sum(rank, count, streams.get(rank));
  }

  void sum(int rank, int count, Stream stream) {
    get(rank).allReduce(in.get(rank), out.get(rank), count, DataType.INT32, ReduceOp.SUM, stream);
  }

  void synchronize() {
    streams.forEach(Stream::synchronize);
  }

  /** A correct collective on all ranks, driven by this thread. */
  void assertUsable() {
    int expected = 0;
    for (int rank = 0; rank < size(); rank++) {
      put(rank, 10 + rank, -rank);
      out.get(rank).copyFrom(new int[] {77, 77, 77});
      expected += 10 + rank;
    }
    for (int rank = 0; rank < size(); rank++) {
      sum(rank, 2);
    }
    synchronize();
    for (int rank = 0; rank < size(); rank++) {
      int[] wanted = {expected, -(size() * (size() - 1) / 2), 77};
      assertArrayEquals(wanted, got(rank, 3), "rank " + rank);
    }
  }

  /** Runs a task on a thread per rank; returns what each threw, null for those that did not. */
  Throwable[] outcomes(Communicators.RankTask task) throws InterruptedException {
    Throwable[] thrown = new Throwable[size()];
    List<Thread> threads = new ArrayList<>();
    for (Communicator communicator : communicators) {
      threads.add(
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      task.run(communicator);
                    } catch (Throwable e) {
                      thrown[communicator.rank()] = e;
                    }
                  }));
    }
    for (Thread thread : threads) {
      thread.join();
    }
    return Arrays.copyOf(thrown, thrown.length);
  }

  @Override
  public void close() {
    // Failed communicators first, so that nothing waits for ranks that will not come.
    communicators.forEach(
        communicator -> {
          if (communicator.state() != Communicator.State.READY) {
            communicator.close();
          }
        });
    streams.forEach(Stream::close);
    communicators.close();
    in.forEach(DeviceBuffer::close);
    out.forEach(DeviceBuffer::close);
  }
}

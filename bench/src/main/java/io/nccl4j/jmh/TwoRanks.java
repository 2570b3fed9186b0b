package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.Arrays;
import org.jspecify.annotations.Nullable;

/**
 * Two ranks that do the same steps: rank 0 whenever the caller says so, rank 1 on a thread of its
 * own as fast as it can. Rank 1 needs no signal: it learns from the sum whether it was the last.
 */
final class TwoRanks implements AutoCloseable {
  private static final float GO = 1;
  private static final float STOP = 100;

  /** One rank's part. */
  private static final class Rank implements AutoCloseable {
    final Communicator communicator;
    final Stream stream;
    final DeviceBuffer in;
    final DeviceBuffer out;
    final DeviceBuffer firstIn;
    final DeviceBuffer firstOut;
    final int count;
    final int batch;
    final float[] first = new float[1];
    @Nullable ExecutableGraph graph;

    Rank(Communicator communicator, int count, int batch, boolean captured) {
      this.communicator = communicator;
      this.count = count;
      this.batch = batch;
      stream = communicator.device().newStream();
      in = communicator.device().allocate(DataType.FLOAT32, count);
      out = communicator.device().allocate(DataType.FLOAT32, count);
      firstIn = in.slice(0, Float.BYTES);
      firstOut = out.slice(0, Float.BYTES);
      float[] ones = new float[count];
      Arrays.fill(ones, GO);
      in.copyFrom(ones);
      if (captured) {
        stream.beginCapture();
        submit();
        try (Graph once = stream.endCapture()) {
          graph = once.instantiate();
        }
      }
    }

    private void submit() {
      for (int i = 0; i < batch; i++) {
        communicator.allReduce(in, out, count, DataType.FLOAT32, ReduceOp.SUM, stream);
      }
    }

    void step() {
      ExecutableGraph captured = graph;
      if (captured == null) {
        submit();
      } else {
        captured.launch(stream);
      }
      stream.synchronize();
    }

    /** The first element of the last sum. */
    float sum() {
      firstOut.copyTo(first);
      return first[0];
    }

    @Override
    public void close() {
      stream.close();
      if (graph != null) {
        graph.close();
      }
      in.close();
      out.close();
    }
  }

  private final Communicators communicators = Communicator.initAll(Backend.HOST, 2);
  private final Rank mine;
  private final Rank other;
  private final Thread thread;
  private volatile @Nullable Throwable failure;

  /**
   * Two ranks, of which the second one begins its first step.
   *
   * @param count floats of one allReduce
   * @param batch allReduces of one step
   * @param captured whether a step is one launch of a graph instead of plain operations
   */
  TwoRanks(int count, int batch, boolean captured) {
    mine = new Rank(communicators.get(0), count, batch, captured);
    other = new Rank(communicators.get(1), count, batch, captured);
    thread = Thread.ofPlatform().daemon().name("rank-1").start(this::follow);
  }

  private void follow() {
    other.communicator.device().bindThread();
    try {
      do {
        other.step();
      } while (other.sum() == GO + GO);
    } catch (Throwable e) {
      failure = e;
      communicators.forEach(Communicator::abort);
    }
  }

  /** One step of rank 0; the first element of its result. */
  float step() {
    mine.step();
    return mine.sum();
  }

  /** The whole result of the last step. */
  float[] result() {
    return mine.out.toFloats();
  }

  /** Work in the FIFO of rank 0, in bytes. */
  long occupiedBytes() {
    return mine.communicator.counters().fifoOccupiedBytes();
  }

  @Override
  public void close() {
    if (failure == null) {
      mine.firstIn.copyFrom(new float[] {STOP});
      mine.step();
    }
    try {
      thread.join();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("interrupted before rank 1 had ended", e);
    }
    if (failure != null) {
      communicators.close();
    }
    mine.close();
    other.close();
    communicators.close();
    if (failure != null) {
      throw new IllegalStateException("rank 1 failed", failure);
    }
  }
}

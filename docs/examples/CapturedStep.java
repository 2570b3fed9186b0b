import static java.lang.foreign.ValueLayout.JAVA_FLOAT;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;

/**
 * Training with many small layers: what a step exchanges is captured once, then launched as one
 * entry of the stream in every step.
 */
public class CapturedStep implements AutoCloseable {
  private static final int RANKS = 2;
  private static final int LAYERS = 24;
  private static final int SIZE = 100;
  private static final int STEPS = 60;

  private final Communicator comm;
  private final Stream stream;
  private final DeviceBuffer gradients;
  private final MemorySegment memory;

  private CapturedStep(Communicator comm) {
    this.comm = comm;
    stream = comm.device().newStream();
    gradients = comm.device().allocate(DataType.FLOAT32, LAYERS * SIZE);
    memory = gradients.hostSegment().orElseThrow();
  }

  public static void main(String[] args) throws Exception {
    try (Communicators ranks = Communicator.initAll(Backend.HOST, RANKS)) {
      ranks.run(CapturedStep::compare);
    }
  }

  private static void compare(Communicator comm) {
    try (CapturedStep training = new CapturedStep(comm)) {
      float[] plain = training.train(training::exchange);
      float[] captured = training.trainCaptured();
      if (comm.rank() == 0) {
        System.out.println("first " + captured[0] + ", last " + captured[STEPS - 1]);
        System.out.println("the same in every step: " + Arrays.equals(plain, captured));
      }
    }
  }

  /** Averages the gradients of all ranks: one operation for each layer. */
  private void exchange() {
    Group.run(
        () -> {
          for (int layer = 0; layer < LAYERS; layer++) {
            DeviceBuffer part = gradients.slice(DataType.FLOAT32, layer * SIZE, SIZE);
            comm.allReduce(part, part, SIZE, DataType.FLOAT32, ReduceOp.AVG, stream);
          }
        });
  }

  private float[] trainCaptured() {
    stream.beginCapture();
    exchange();
    try (Graph graph = stream.endCapture();
        ExecutableGraph step = graph.instantiate()) {
      return train(() -> step.launch(stream));
    }
  }

  /**
   * Each rank pulls the weights towards a target of its own; they end halfway between the targets.
   * Returns the square of the averaged gradient in each step.
   */
  private float[] train(Runnable exchange) {
    float[] weights = new float[LAYERS * SIZE];
    float[] squares = new float[STEPS];
    for (int step = 0; step < STEPS; step++) {
      for (int i = 0; i < weights.length; i++) {
        memory.setAtIndex(JAVA_FLOAT, i, weights[i] - target(comm.rank(), i));
      }
      exchange.run();
      stream.synchronize();
      for (int i = 0; i < weights.length; i++) {
        float gradient = memory.getAtIndex(JAVA_FLOAT, i);
        squares[step] += gradient * gradient;
        weights[i] -= 0.1f * gradient;
      }
    }
    return squares;
  }

  private static float target(int rank, int i) {
    return (rank + 1) * (i % 7) / 4f;
  }

  @Override
  public void close() {
    gradients.close();
    stream.close();
  }
}

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Launch;
import io.nccl4j.ReduceOp;
import java.util.Arrays;
import java.util.SplittableRandom;

/**
 * Logistic regression by gradient descent; each rank has a part of the data and all of the weights.
 * Ranks are the processes of a launcher, or threads: {@code DataParallel [threads]}.
 */
public class DataParallel {
  private static final int EXAMPLES = 3000;
  private static final int FEATURES = 4;
  private static final int STEPS = 100;
  private static final float RATE = 2;

  public static void main(String[] args) throws Exception {
    int threads = args.length > 0 ? Integer.parseInt(args[0]) : 3;
    Launch.run(Backend.HOST, threads, DataParallel::train);
  }

  private static void train(Communicator comm) {
    int from = EXAMPLES * comm.rank() / comm.nranks();
    int to = EXAMPLES * (comm.rank() + 1) / comm.nranks();
    float[][] inputs = new float[to - from][];
    boolean[] labels = new boolean[to - from];
    for (int i = from; i < to; i++) {
      inputs[i - from] = input(i);
      labels[i - from] = label(i, inputs[i - from]);
    }

    float[] weights = new float[FEATURES];
    for (int step = 0; step < STEPS; step++) {
      float[] gradient = gradient(weights, inputs, labels);
      // The sum over all examples, divided by their number: parts need not be of equal size.
      comm.allReduce(gradient, ReduceOp.SUM);
      for (int f = 0; f < FEATURES; f++) {
        // All ranks get the same bits, so their weights never differ.
        weights[f] -= RATE * gradient[f] / EXAMPLES;
      }
    }

    long[] right = new long[1];
    for (int i = 0; i < inputs.length; i++) {
      right[0] += probability(weights, inputs[i]) > 0.5 == labels[i] ? 1 : 0;
    }
    comm.allReduce(right, ReduceOp.SUM);
    if (comm.rank() == 0) {
      System.out.println("weights " + Arrays.toString(weights));
      System.out.println(right[0] + " of " + EXAMPLES + " are right");
    }
  }

  private static float[] gradient(float[] weights, float[][] inputs, boolean[] labels) {
    float[] gradient = new float[FEATURES];
    for (int i = 0; i < inputs.length; i++) {
      float error = probability(weights, inputs[i]) - (labels[i] ? 1 : 0);
      for (int f = 0; f < FEATURES; f++) {
        gradient[f] += error * inputs[i][f];
      }
    }
    return gradient;
  }

  private static float probability(float[] weights, float[] input) {
    float sum = 0;
    for (int f = 0; f < FEATURES; f++) {
      sum += weights[f] * input[f];
    }
    return (float) (1 / (1 + StrictMath.exp(-sum)));
  }

  /** Example number i, whichever rank has it. The first feature is constant. */
  private static float[] input(int i) {
    SplittableRandom random = new SplittableRandom(i);
    float[] input = new float[FEATURES];
    input[0] = 1;
    for (int f = 1; f < FEATURES; f++) {
      input[f] = 2 * (float) random.nextDouble() - 1;
    }
    return input;
  }

  /** What is to be learnt, with some noise. */
  private static boolean label(int i, float[] input) {
    double noise = new SplittableRandom(~i).nextDouble() - 0.5;
    return 0.5 * input[0] - 1 * input[1] + 2 * input[2] + 1.5 * input[3] + noise > 0;
  }
}

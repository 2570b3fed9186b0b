import io.nccl4j.ArrayCalls;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Launch;
import java.util.Arrays;

/** A ring of processes, started by any launcher: first each turns at once, then one at a time. */
public class Ring {
  private static final int ROUNDS = 3;

  public static void main(String[] args) {
    Launch launch =
        Launch.detect()
            .orElseThrow(
                () ->
                    new IllegalStateException(
                        "no launcher: set NCCL4J_RANK, NCCL4J_NRANKS and NCCL4J_JOB"));
    try (Communicator comm = launch.initRank(Backend.HOST)) {
      rotate(comm);
      passToken(comm);
    }
  }

  /**
   * All blocks go round at the same time: after n−1 turns each rank has seen all of them. A send
   * and a receive that wait one after the other would wait for each other; sendRecv does both.
   */
  private static void rotate(Communicator comm) {
    int next = (comm.rank() + 1) % comm.nranks();
    int previous = (comm.rank() + comm.nranks() - 1) % comm.nranks();
    ArrayCalls<double[]> doubles = comm.doubles();
    double[] block = new double[1000];
    Arrays.setAll(block, i -> comm.rank() + i / 8.0);
    double[] sums = block.clone();
    double[] received = new double[block.length];
    for (int turn = 1; turn < comm.nranks(); turn++) {
      doubles.sendRecv(block, next, received, previous);
      for (int i = 0; i < sums.length; i++) {
        sums[i] += received[i];
      }
      double[] free = block;
      block = received;
      received = free;
    }
    if (comm.rank() == 0) {
      System.out.println("sums " + sums[0] + " … " + sums[999]);
    }
  }

  /** One token goes round; each rank waits for it, adds to it and sends it on. */
  private static void passToken(Communicator comm) {
    int next = (comm.rank() + 1) % comm.nranks();
    int previous = (comm.rank() + comm.nranks() - 1) % comm.nranks();
    // The token: how often it was passed on, and a mark that depends on the order of the ranks.
    long[] token = {0, 1};
    for (int round = 0; round < ROUNDS; round++) {
      if (round > 0 || comm.rank() > 0) {
        comm.longs().recv(token, previous);
      }
      token[0]++;
      token[1] = 31 * token[1] + comm.rank();
      comm.longs().send(token, next);
    }
    if (comm.rank() == 0) {
      // The last rank has sent it once more than the others have received it.
      comm.longs().recv(token, previous);
      System.out.println("the token made " + token[0] + " steps, its mark is " + token[1]);
    }
  }
}

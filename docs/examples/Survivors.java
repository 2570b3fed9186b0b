import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.Launch;
import io.nccl4j.PeerFailedException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.Arrays;

/**
 * Heat spreads along a rod. If ranks die, the others form a new communicator and go on from the
 * last checkpoint: {@code Survivors CHECKPOINT [rank to kill]}.
 */
public class Survivors {
  private static final int CELLS = 1000;
  private static final int STEPS = 200;
  private static final int CHECKPOINT_STEPS = 20;
  private static final int KILLED_AT = 50;

  public static void main(String[] args) throws Exception {
    try (Launch launch = Launch.detect().orElseThrow()) {
      int me = launch.firstRank(1);
      boolean dies = args.length > 1 && args[1].equals("" + me);
      Communicator comm = launch.initRank(Backend.HOST);
      while (true) {
        try {
          simulate(comm, Path.of(args[0]), me, dies);
          comm.close();
          return;
        } catch (PeerFailedException | DeadlineException e) {
          System.err.println("rank " + me + ": " + e.getMessage());
          Communicator failed = comm;
          comm = failed.survivors(Duration.ofSeconds(5));
          failed.close();
        }
      }
    }
  }

  private static void simulate(Communicator comm, Path checkpoint, int me, boolean dies)
      throws Exception {
    int n = comm.nranks();
    // Who this communicator has, by their numbers at the start.
    int[] members = new int[n];
    comm.ints().allGather(new int[] {me}, members);
    double[] state = new double[CELLS + 1]; // The last one counts the steps.
    if (comm.rank() == 0) {
      if (Files.exists(checkpoint)) {
        ByteBuffer.wrap(Files.readAllBytes(checkpoint)).asDoubleBuffer().get(state);
      }
      System.out.println(
          "ranks " + Arrays.toString(members) + " go on from step " + (int) state[CELLS]);
    }
    comm.broadcast(state, 0);
    long[] counts = new long[n];
    Arrays.setAll(counts, r -> CELLS * (r + 1) / n - CELLS * r / n);
    double[] mine = new double[(int) counts[comm.rank()]];
    while (state[CELLS] < STEPS) {
      if (dies && state[CELLS] == KILLED_AT) {
        new ProcessBuilder("kill", "-9", "" + ProcessHandle.current().pid()).start().waitFor();
      }
      for (int i = 0; i < mine.length; i++) {
        int cell = CELLS * comm.rank() / n + i;
        double left = cell == 0 ? 1 : state[cell - 1];
        double right = cell == CELLS - 1 ? 0 : state[cell + 1];
        mine[i] = state[cell] + 0.25 * (left - 2 * state[cell] + right);
      }
      comm.doubles().allGatherV(mine, state, counts);
      if (++state[CELLS] % CHECKPOINT_STEPS == 0 && comm.rank() == 0) {
        ByteBuffer bytes = ByteBuffer.allocate(state.length * Double.BYTES);
        bytes.asDoubleBuffer().put(state);
        Path draft = Files.write(checkpoint.resolveSibling("next-checkpoint"), bytes.array());
        Files.move(draft, checkpoint, StandardCopyOption.ATOMIC_MOVE);
      }
    }
    if (comm.rank() == 0) {
      System.out.println("heat " + Arrays.stream(state, 0, CELLS).sum());
    }
  }
}

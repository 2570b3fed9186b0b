import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.Launch;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;

/**
 * Heat spreads along a rod. If ranks die, the others form a new communicator and go on from the
 * last checkpoint: {@code Survivors FOLDER [rank to kill]}, with a new, private folder for each
 * job.
 */
public class Survivors {
  private static final int CELLS = 1000;
  private static final int STEPS = 200;
  private static final int CHECKPOINT_STEPS = 20;
  private static final int KILLED_AT = 50;

  /** The ranks of one communicator, by their numbers at the start, and its unique id. */
  private record Generation(List<Integer> members, UniqueId id) {}

  public static void main(String[] args) throws Exception {
    Launch launch = Launch.detect().orElseThrow();
    int me = launch.firstRank(1);
    Path folder = Path.of(args[0]);
    boolean dies = args.length > 1 && args[1].equals("" + me);
    List<Integer> members = IntStream.range(0, launch.nranks(1)).boxed().toList();
    for (int g = 0; ; g++) {
      Generation now = agree(folder.resolve("generation-" + g), members);
      int rank = now.members.indexOf(me);
      if (rank < 0) {
        throw new IllegalStateException("the others have given up rank " + me);
      }
      Path arrived = Files.createDirectories(folder.resolve("arrived-" + g));
      Files.createFile(arrived.resolve("" + me));
      try (Communicator comm =
          Communicator.initRank(Device.get(Backend.HOST, rank), now.members.size(), now.id, rank)) {
        simulate(comm, folder.resolve("checkpoint"), now.members, dies);
        return;
      } catch (NcclException e) {
        if (g == 10) {
          throw e;
        }
        System.err.println("rank " + me + ": " + e.getMessage());
        List<Integer> failed = e.failedRanks().stream().map(now.members::get).toList();
        // Gone are those who failed, and those who died before they came to this communicator.
        members =
            now.members.stream()
                .filter(r -> !failed.contains(r) && Files.exists(arrived.resolve("" + r)))
                .toList();
      }
    }
  }

  /** The proposal of whoever comes first counts for all. A link appears complete, and only once. */
  private static Generation agree(Path file, List<Integer> members) throws IOException {
    if (Files.notExists(file)) {
      String proposal = members.toString().replaceAll("[\\[,\\]]", "") + "\n";
      Path draft = Files.createTempFile(file.getParent(), "draft", "");
      Files.writeString(draft, proposal + UniqueId.create(Backend.HOST));
      try {
        Files.createLink(file, draft);
      } catch (FileAlreadyExistsException e) {
        // Another rank was faster: its proposal counts, and this id expires unused.
      }
      Files.delete(draft);
    }
    List<String> lines = Files.readAllLines(file);
    return new Generation(
        Stream.of(lines.get(0).split(" ")).map(Integer::valueOf).toList(),
        UniqueId.parse(lines.get(1)));
  }

  private static void simulate(
      Communicator comm, Path checkpoint, List<Integer> members, boolean dies) throws Exception {
    int n = comm.nranks();
    double[] state = new double[CELLS + 1]; // The last one counts the steps.
    if (comm.rank() == 0) {
      if (Files.exists(checkpoint)) {
        ByteBuffer.wrap(Files.readAllBytes(checkpoint)).asDoubleBuffer().get(state);
      }
      System.out.println("ranks " + members + " go on from step " + (int) state[CELLS]);
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

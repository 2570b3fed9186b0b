import static java.lang.foreign.ValueLayout.JAVA_DOUBLE;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.SplittableRandom;

/**
 * k-means over a file of points, pairs of little-endian floats: {@code KMeans FILE K RANKS}. Each
 * rank maps its part of the file; points are never copied, and only sums and counts travel. A file
 * that does not exist is filled with an example.
 */
public class KMeans {
  private static final ValueLayout.OfFloat COORDINATE =
      ValueLayout.JAVA_FLOAT.withOrder(ByteOrder.LITTLE_ENDIAN);
  private static final int POINT_BYTES = 2 * Float.BYTES;

  public static void main(String[] args) throws Exception {
    Path file = Path.of(args[0]);
    if (Files.notExists(file)) {
      generate(file);
    }
    try (Communicators ranks = Communicator.initAll(Backend.HOST, Integer.parseInt(args[2]))) {
      ranks.run(comm -> cluster(comm, file, Integer.parseInt(args[1])));
    }
  }

  /** Points around three centres; sums of multiples of 1/1024 are exact, whoever adds them up. */
  private static void generate(Path file) throws IOException {
    SplittableRandom random = new SplittableRandom(1);
    ByteBuffer points = ByteBuffer.allocate(20_000 * POINT_BYTES).order(ByteOrder.LITTLE_ENDIAN);
    while (points.hasRemaining()) {
      int centre = random.nextInt(3);
      points.putFloat(2 * centre + random.nextInt(-1500, 1500) / 1024f);
      points.putFloat(centre + random.nextInt(-1500, 1500) / 1024f);
    }
    Files.write(file, points.array());
  }

  private static void cluster(Communicator comm, Path file, int k) throws IOException {
    try (FileChannel channel = FileChannel.open(file);
        Arena arena = Arena.ofConfined();
        Stream stream = comm.device().newStream();
        DeviceBuffer buffer = comm.device().allocate(DataType.FLOAT64, 3L * k)) {
      long points = channel.size() / POINT_BYTES;
      long from = points * comm.rank() / comm.nranks();
      MemorySegment mine = map(channel, from, points * (comm.rank() + 1) / comm.nranks(), arena);
      // For each cluster the sums of x and y, and the number of points: operations read this.
      MemorySegment sums = buffer.hostSegment().orElseThrow();

      double[] centroids = new double[2 * k];
      MemorySegment first = map(channel, 0, k, arena);
      Arrays.setAll(centroids, i -> first.getAtIndex(COORDINATE, i));
      int rounds = 0;
      for (boolean moved = true; moved && rounds < 100; rounds++) {
        addUp(mine, centroids, sums.fill((byte) 0));
        comm.allReduce(buffer, buffer, 3L * k, DataType.FLOAT64, ReduceOp.SUM, stream);
        stream.synchronize();
        // All ranks have the same bits, and so end in the same round.
        moved = move(centroids, sums);
      }
      if (comm.rank() == 0) {
        System.out.println(rounds + " rounds: " + Arrays.toString(centroids));
      }
    }
  }

  private static MemorySegment map(FileChannel channel, long from, long to, Arena arena)
      throws IOException {
    return channel.map(MapMode.READ_ONLY, from * POINT_BYTES, (to - from) * POINT_BYTES, arena);
  }

  private static void addUp(MemorySegment points, double[] centroids, MemorySegment sums) {
    for (long p = 0; p < points.byteSize(); p += POINT_BYTES) {
      double x = points.get(COORDINATE, p);
      double y = points.get(COORDINATE, p + Float.BYTES);
      int nearest = 0;
      double least = Double.POSITIVE_INFINITY;
      for (int c = 0; c < centroids.length / 2; c++) {
        double dx = x - centroids[2 * c];
        double dy = y - centroids[2 * c + 1];
        nearest = dx * dx + dy * dy < least ? c : nearest;
        least = Math.min(dx * dx + dy * dy, least);
      }
      add(sums, 3 * nearest, x);
      add(sums, 3 * nearest + 1, y);
      add(sums, 3 * nearest + 2, 1);
    }
  }

  private static void add(MemorySegment sums, int index, double value) {
    sums.setAtIndex(JAVA_DOUBLE, index, sums.getAtIndex(JAVA_DOUBLE, index) + value);
  }

  /** Whether a centroid moved; one without points stays. */
  private static boolean move(double[] centroids, MemorySegment sums) {
    double[] before = centroids.clone();
    for (int i = 0; i < centroids.length; i++) {
      double count = sums.getAtIndex(JAVA_DOUBLE, 3 * (i / 2) + 2);
      double sum = sums.getAtIndex(JAVA_DOUBLE, 3 * (i / 2) + i % 2);
      centroids[i] = count > 0 ? sum / count : before[i];
    }
    return !Arrays.equals(before, centroids);
  }
}

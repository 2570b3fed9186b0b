package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Pages.Block;
import io.nccl4j.bindings.Libc;
import io.nccl4j.internal.bootstrap.ChildJvm;
import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/**
 * The programs in docs/examples: the commands of docs/examples.md print what the page shows, and
 * that is what a plain loop without ranks calculates.
 */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
final class ExamplesTest {
  static final Path PAGE = Pages.ROOT.resolve("docs/examples.md");
  private static final int LONGEST_PROGRAM = 120;

  @TempDir static Path classes;
  @TempDir Path folder;

  @BeforeAll
  static void compile() throws IOException {
    Pages.compile(classes, sources(), "-cp", System.getProperty("java.class.path"));
  }

  private static List<Path> sources() throws IOException {
    try (Stream<Path> files = Files.list(Pages.ROOT.resolve("docs/examples"))) {
      return files.filter(file -> file.toString().endsWith(".java")).sorted().toList();
    }
  }

  @Test
  void programsAreShortAndOnThePage() throws IOException {
    String page = Files.readString(PAGE);
    for (Path source : sources()) {
      assertTrue(Files.readAllLines(source).size() <= LONGEST_PROGRAM, source::toString);
      assertTrue(page.contains("](examples/" + source.getFileName() + ")"), source::toString);
    }
  }

  /** Three ranks are a loop over three parts; one rank differs by rounding. */
  @Test
  void dataParallelLearnsTheWeightsOfALoop() throws Exception {
    List<String> printed = printed("DataParallel");
    assertEquals("weights " + Arrays.toString(logisticRegression(3)), printed.get(0));
    assertEquals("weights " + Arrays.toString(logisticRegression(1)), printed.get(2));
    assertEquals(printed.subList(0, 2), printed.subList(4, 6));
  }

  private static float[] logisticRegression(int parts) {
    float[] weights = new float[4];
    for (int step = 0; step < 100; step++) {
      float[] sum = new float[4];
      for (int part = 0; part < parts; part++) {
        float[] gradient = new float[4];
        for (int i = 3000 / parts * part; i < 3000 / parts * (part + 1); i++) {
          SplittableRandom random = new SplittableRandom(i);
          float[] x = {1, 0, 0, 0};
          for (int f = 1; f < 4; f++) {
            x[f] = 2 * (float) random.nextDouble() - 1;
          }
          double noise = new SplittableRandom(~i).nextDouble() - 0.5;
          boolean label = 0.5 - x[1] + 2.0 * x[2] + 1.5 * x[3] + noise > 0;
          float z = 0;
          for (int f = 0; f < 4; f++) {
            z += weights[f] * x[f];
          }
          float error = (float) (1 / (1 + StrictMath.exp(-z))) - (label ? 1 : 0);
          for (int f = 0; f < 4; f++) {
            gradient[f] += error * x[f];
          }
        }
        for (int f = 0; f < 4; f++) {
          sum[f] = part == 0 ? gradient[f] : sum[f] + gradient[f];
        }
      }
      for (int f = 0; f < 4; f++) {
        weights[f] -= 2 * sum[f] / 3000;
      }
    }
    return weights;
  }

  @Test
  void ringAddsUpAndPassesItsToken() throws Exception {
    List<String> printed = printed("Ring");
    assertEquals("sums " + 6.0 + " … " + (6 + 4 * 999 / 8.0), printed.get(0));
    long mark = 1;
    for (int step = 0; step < 12; step++) {
      mark = 31 * mark + step % 4;
    }
    assertEquals("the token made 12 steps, its mark is " + mark, printed.get(1));
  }

  @Test
  void kMeansFindsTheCentroidsOfALoop() throws Exception {
    List<String> printed = printed("KMeans");
    try (Stream<Path> files = Files.find(folder, 3, (file, a) -> file.endsWith("points"))) {
      byte[] bytes = Files.readAllBytes(files.findFirst().orElseThrow());
      FloatBuffer points = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer();
      String[] line = printed.get(0).split(" rounds: ");
      double[] centroids = kMeans(points, Integer.parseInt(line[0]) - 1);
      assertFalse(Arrays.equals(centroids, kMeans(points, Integer.parseInt(line[0]) - 2)));
      assertEquals(Arrays.toString(centroids), line[1]);
      assertEquals(printed.get(0), printed.get(1));
    }
  }

  private static double[] kMeans(FloatBuffer points, int rounds) {
    double[] centroids = {points.get(0), points.get(1), points.get(2), points.get(3)};
    for (int round = 0; round < rounds; round++) {
      double[][] sums = new double[2][3];
      for (int p = 0; p < points.capacity(); p += 2) {
        double[] squares = new double[2];
        for (int c = 0; c < 2; c++) {
          double dx = points.get(p) - centroids[2 * c];
          double dy = points.get(p + 1) - centroids[2 * c + 1];
          squares[c] = dx * dx + dy * dy;
        }
        int nearest = squares[1] < squares[0] ? 1 : 0;
        sums[nearest][0] += points.get(p);
        sums[nearest][1] += points.get(p + 1);
        sums[nearest][2]++;
      }
      for (int i = 0; i < centroids.length; i++) {
        centroids[i] = sums[i / 2][i % 2] / sums[i / 2][2];
      }
    }
    return centroids;
  }

  /** Each step takes a tenth of the way that is left to the average of the targets. */
  @Test
  void capturedStepsTakeTheirShareOfTheWay() throws Exception {
    List<String> printed = printed("CapturedStep");
    double square = 0;
    for (int i = 0; i < 2400; i++) {
      square += Math.pow(1.5 * (i % 7) / 4, 2);
    }
    String[] line = printed.get(0).split("first |, last ");
    assertEquals(square, Double.parseDouble(line[1]), square * 1e-5);
    double last = square * Math.pow(0.9, 2 * 59);
    assertEquals(last, Double.parseDouble(line[2]), last * 1e-3);
    assertEquals("the same in every step: true", printed.get(1));
  }

  @Test
  void survivorsEndWithTheHeatOfALoop() throws Exception {
    List<String> printed = printed("Survivors");
    assertEquals("ranks [0, 1, 3] go on from step 40", printed.get(1));
    assertEquals("heat " + heat(), printed.get(2));
  }

  /** Rank 0, which writes checkpoints and may have created the id, dies with another one. */
  @Tag("long")
  @Test
  void survivorsOfTwoDeathsEndWithTheHeatOfALoop() throws Exception {
    Block command = commands("Survivors").getFirst();
    String both = command.text().replace("checkpoint 2 ", "checkpoint $((rank / 2 * 2)) ");
    assertFalse(both.equals(command.text()), both);
    List<String> printed = run(both);
    assertEquals("ranks [0, 1, 2, 3] go on from step 0", printed.getFirst());
    assertEquals(List.of("ranks [1, 3] go on from step 40", "heat " + heat()), lastTwo(printed));
  }

  private static List<String> lastTwo(List<String> lines) {
    return lines.subList(Math.max(0, lines.size() - 2), lines.size());
  }

  private static double heat() {
    double[] heat = new double[1000];
    for (int step = 0; step < 200; step++) {
      double[] next = heat.clone();
      for (int cell = 0; cell < heat.length; cell++) {
        double left = cell == 0 ? 1 : heat[cell - 1];
        double right = cell == heat.length - 1 ? 0 : heat[cell + 1];
        next[cell] += 0.25 * (left - 2 * heat[cell] + right);
      }
      heat = next;
    }
    return Arrays.stream(heat).sum();
  }

  // ---------------------------------------------------------------- the page's commands

  /** What the page's commands for a program print, which must be what the page shows. */
  private List<String> printed(String program) throws Exception {
    List<Block> blocks = Pages.blocks(PAGE);
    List<String> all = new ArrayList<>();
    for (Block command : commands(program)) {
      List<String> printed = run(command.text());
      Block shown = blocks.get(blocks.indexOf(command) + 1);
      assertEquals("text", shown.language());
      assertEquals(shown.text().lines().toList(), printed);
      all.addAll(printed);
    }
    return all;
  }

  static List<Block> commands(String program) throws IOException {
    List<Block> commands =
        Pages.blocks(PAGE).stream()
            .filter(block -> block.language().equals("sh"))
            .filter(block -> block.text().matches("(?s).*ALL-UNNAMED " + program + "\\b.*"))
            .toList();
    assertFalse(commands.isEmpty(), program);
    return commands;
  }

  private List<String> run(String command) throws Exception {
    assumeTrue(!command.contains("wait\n") || Libc.isAvailable(), Libc::unavailableReason);
    return run(command, 60, folder, classes.toString(), List.of("-Xmx128m"));
  }

  /** The lines that a command prints in a shell whose class path has the programs. */
  static List<String> run(
      String command, int seconds, Path folder, String programs, List<String> javaOptions)
      throws Exception {
    List<String> options = new ArrayList<>(ChildJvm.classPath());
    String classPath = options.removeLast();
    options.subList(options.indexOf("-cp"), options.size()).clear();
    options.addAll(List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    options.addAll(javaOptions);
    Path out = folder.resolve("out");
    Path errors = folder.resolve("errors");
    ProcessBuilder builder =
        new ProcessBuilder("bash", "-c", command)
            .redirectOutput(out.toFile())
            .redirectError(errors.toFile());
    Map<String, String> environment = builder.environment();
    // What is archived must come first.
    environment.put("CLASSPATH", classPath + File.pathSeparator + programs);
    environment.put("JDK_JAVA_OPTIONS", String.join(" ", options));
    environment.put("TMPDIR", folder.toString());
    String jdk = Path.of(System.getProperty("java.home"), "bin").toString();
    environment.merge("PATH", jdk, (old, first) -> first + File.pathSeparator + old);
    Process shell = builder.start();
    boolean ended = shell.waitFor(seconds, TimeUnit.SECONDS);
    shell.descendants().forEach(ProcessHandle::destroyForcibly);
    shell.destroyForcibly();
    String said = Files.readString(errors);
    assertTrue(ended, () -> "still running after " + seconds + " s: " + said);
    assertEquals(0, shell.exitValue(), said);
    return Files.readAllLines(out);
  }
}

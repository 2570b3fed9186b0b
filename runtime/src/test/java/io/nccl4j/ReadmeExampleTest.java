package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.nccl4j.Pages.Block;
import io.nccl4j.bindings.Libc;
import io.nccl4j.internal.bootstrap.ChildJvm;
import io.nccl4j.internal.cuda.StandIn;
import java.io.File;
import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.NullMarked;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/**
 * What README.md and docs/*.md say, as far as it can be run: a {@code java} block with a main
 * method is a whole program, and the next {@code text} block is what it prints.
 */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
@Tag("parallel")
final class ReadmeExampleTest {
  private static final Path ROOT = Pages.ROOT;
  private static final Pattern CLASS = Pattern.compile("^public class (\\w+)", Pattern.MULTILINE);
  private static final Pattern LINK = Pattern.compile("\\]\\(([^)\\s]+)\\)");
  private static final Pattern HEADING = Pattern.compile("^#+ (.*)$", Pattern.MULTILINE);

  /** Maven does not hand optional dependencies on to those who depend on this module. */
  private static final Pattern JSPECIFY_IS_OPTIONAL =
      Pattern.compile("<artifactId>jspecify</artifactId>\\s*<optional>true</optional>");

  private static final int LONGEST_LINE = 120;

  /** A page with more lines has a list of contents. */
  private static final int LONG_PAGE = 200;

  /** The first JDK that knows the option --illegal-native-access. */
  private static final int KNOWS_ILLEGAL_ACCESS = 24;

  @TempDir Path folder;

  /** A whole program of a page, and what it prints. */
  private record Program(String page, String name, String source, String output) {
    @Override
    public String toString() {
      return page + ": " + name;
    }
  }

  static List<Path> pages() throws IOException {
    List<Path> pages = new ArrayList<>(List.of(ROOT.resolve("README.md")));
    for (String name : List.of("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")) {
      pages.add(ROOT.resolve(name));
    }
    try (Stream<Path> docs = Files.list(ROOT.resolve("docs"))) {
      docs.filter(page -> page.toString().endsWith(".md")).sorted().forEach(pages::add);
    }
    return pages;
  }

  static List<Program> programs() throws IOException {
    List<Program> programs = new ArrayList<>();
    for (Path page : pages()) {
      List<Block> blocks = Pages.blocks(page);
      for (int i = 0; i < blocks.size(); i++) {
        Block block = blocks.get(i);
        if (block.language().equals("java") && block.text().contains("static void main(")) {
          Matcher name = CLASS.matcher(block.text());
          assertTrue(name.find(), page + ": a program without a public class\n" + block.text());
          assertTrue(
              i + 1 < blocks.size() && blocks.get(i + 1).language().equals("text"),
              page + ": no text block with the output follows " + name.group(1));
          String output = blocks.get(i + 1).text();
          programs.add(
              new Program(ROOT.relativize(page).toString(), name.group(1), block.text(), output));
        }
      }
    }
    return programs;
  }

  @ParameterizedTest
  @MethodSource("programs")
  void programsPrintWhatTheirPageShows(Program program) throws Exception {
    String classPath = System.getProperty("java.class.path");
    Path source = folder.resolve(program.name + ".java");
    Files.writeString(source, program.source);
    compile(List.of(source), "-cp", classPath);
    List<String> command = java();
    command.add("--enable-native-access=ALL-UNNAMED");
    // What is archived must come first.
    command.addAll(ChildJvm.classPath());
    command.addLast(command.removeLast() + File.pathSeparator + folder);
    command.add(program.name);
    assertEquals(program.output.strip(), run(command).strip());
  }

  /** What the page shows is not only what it falls back to without GPUs. */
  @Tag("long")
  @Test
  void kernelsOfThePageCommunicate() throws Exception {
    StandIn standIn = StandIn.require();
    Program program =
        programs().stream().filter(one -> one.name.equals("PeerSum")).findFirst().orElseThrow();
    Path source = folder.resolve("PeerSum.java");
    Files.writeString(source, program.source);
    compile(List.of(source), "-cp", System.getProperty("java.class.path"));
    List<String> command = java();
    command.add("--enable-native-access=ALL-UNNAMED");
    command.addAll(ChildJvm.classPath());
    command.addLast(command.removeLast() + File.pathSeparator + folder);
    command.add(program.name);
    ProcessBuilder builder = new ProcessBuilder(command).directory(ROOT.toFile());
    builder.environment().put("NCCL4J_CUDA_LIBRARY", standIn.cuda().toString());
    builder.environment().put("NCCL4J_NCCL_LIBRARY", standIn.nccl().toString());
    assertEquals(program.output.strip(), run(builder).strip());
    builder.environment().put("STANDIN_FAULT", "ncclDevCommCreate:1:error:3");
    AssertionError failed = assertThrows(AssertionError.class, () -> run(builder));
    assertTrue(
        String.valueOf(failed.getMessage()).contains("device communicator"), failed::toString);
  }

  @Test
  void readmeHasAProgram() throws IOException {
    assertTrue(programs().stream().anyMatch(program -> program.page.equals("README.md")));
  }

  /** With the option that README.md names, nothing is printed but what the program prints. */
  @Test
  void nothingElseIsPrintedOnTheClassPath() throws Exception {
    Program readme = programs().getFirst();
    Path source = folder.resolve(readme.name + ".java");
    Files.writeString(source, readme.source);
    compile(List.of(source), "-cp", modulePath());
    assertEquals(readme.output.strip(), everythingPrinted(onClassPath(readme.name)));
  }

  @Test
  void nothingElseIsPrintedByAModule() throws Exception {
    Program readme = programs().getFirst();
    compileModule(readme.name, readme.source);
    assertEquals(
        readme.output.strip(),
        everythingPrinted(
            List.of(
                javaCommand(),
                "--enable-native-access=io.nccl4j.bindings",
                "-p",
                folder + File.pathSeparator + modulePath(),
                "-m",
                "consumer/consumer." + readme.name)));
  }

  /** Errors are printed where nobody else logs them; a provider of the program gets them all. */
  @Test
  void theProgramsOwnLoggingCounts() throws Exception {
    Path source = folder.resolve("Logging.java");
    Files.writeString(
        source,
        """
        import org.apache.logging.log4j.LogManager;
        import org.apache.logging.log4j.simple.SimpleLoggerContextFactory;
        import org.apache.logging.log4j.spi.Provider;

        public class Logging extends Provider {
          public Logging() {
            super(0, CURRENT_VERSION, Factory.class);
          }

          public static class Factory extends SimpleLoggerContextFactory {}

          public static void main(String[] args) {
            System.out.println(LogManager.getFactory().getClass().getSimpleName());
            LogManager.getLogger("it").error("broke");
            LogManager.getLogger("it").warn("may break");
          }
        }
        """);
    compile(List.of(source), "-cp", modulePath());
    assertEquals(
        "SimpleLoggerContextFactory\nERROR it broke", everythingPrinted(onClassPath("Logging")));
    Path services = Files.createDirectories(folder.resolve("META-INF/services"));
    Files.writeString(services.resolve("org.apache.logging.log4j.spi.Provider"), "Logging\n");
    assertEquals("Factory\nERROR it broke", everythingPrinted(onClassPath("Logging")));
  }

  private List<String> onClassPath(String name) {
    String path = folder + File.pathSeparator + modulePath();
    return List.of(javaCommand(), "--enable-native-access=ALL-UNNAMED", "-cp", path, name);
  }

  /** Standard output, then standard error. */
  private String everythingPrinted(List<String> command) throws Exception {
    Path out = folder.resolve("out");
    String printed = outcome(start(command, out), out);
    return (printed + Files.readString(errors(out))).strip();
  }

  /** Ranks as threads, in a program that has a module descriptor of its own. */
  @Test
  void runtimeIsAModuleForThreads() throws Exception {
    Program readme = programs().getFirst();
    compileModule(readme.name, readme.source);
    assertEquals(readme.output.strip(), runModule(readme.name).strip());
  }

  /** Ranks as processes, which need the native access of the one module that README.md names. */
  @Test
  void runtimeIsAModuleForProcesses() throws Exception {
    // The fork of the tests has native access: what keeps it from the C library keeps the child.
    assumeTrue(Libc.isAvailable(), () -> skipped(Libc.unavailableReason()));
    String name = "Rank";
    compileModule(
        name,
        """
        import io.nccl4j.*;
        import java.nio.file.Path;
        import java.time.Duration;

        public class Rank {
          public static void main(String[] args) {
            int rank = Integer.parseInt(args[0]);
            Path file = Path.of(args[1]);
            UniqueId id = null;
            if (rank == 0) {
              id = UniqueId.create(Backend.HOST);
              id.writeTo(file);
            } else {
              id = UniqueId.readFrom(file, Duration.ofSeconds(30));
            }
            Device device = Device.get(Backend.HOST, rank);
            CommunicatorConfig config =
                CommunicatorConfig.builder().initTimeout(Duration.ofSeconds(60)).build();
            try (Communicator comm = Communicator.initRank(device, 2, id, rank, config);
                Stream stream = device.newStream();
                DeviceBuffer buffer = device.allocate(DataType.INT32, 1000)) {
              buffer.copyFrom(new int[] {rank + 1});
              comm.allReduce(buffer, buffer, 1000, DataType.INT32, ReduceOp.SUM, stream);
              stream.synchronize();
              System.out.println("rank " + rank + " has " + buffer.toInts()[0]);
            }
          }
        }
        """);
    Path id = folder.resolve("id");
    Process first = start(moduleCommand(name, "0", id.toString()), folder.resolve("out0"));
    Process second = start(moduleCommand(name, "1", id.toString()), folder.resolve("out1"));
    assertEquals("rank 0 has 3", outcome(first, folder.resolve("out0")).strip());
    assertEquals("rank 1 has 3", outcome(second, folder.resolve("out1")).strip());
  }

  @Test
  void readmeShowsTheTwoCommands() throws IOException {
    String readme = Files.readString(ROOT.resolve("README.md"));
    assertTrue(readme.contains("\n./nccl4j allreduce -b 8 -e 128M -f 2 -t 2\n"));
    assertTrue(readme.contains("\nmvn verify\n"));
    assertTrue(Files.isExecutable(ROOT.resolve("nccl4j")));
  }

  @Test
  void readmeNamesTheCoordinates() throws IOException {
    String readme = Files.readString(ROOT.resolve("README.md"));
    String pom = Files.readString(ROOT.resolve("runtime/pom.xml"));
    for (String element : new String[] {"groupId", "artifactId", "version"}) {
      Matcher inReadme = element(element, readme);
      assertTrue(inReadme.find(), element);
      assertTrue(pom.contains(inReadme.group()), inReadme.group());
    }
  }

  private static Matcher element(String name, String text) {
    return Pattern.compile("<" + name + ">[^<]+</" + name + ">").matcher(text);
  }

  @ParameterizedTest
  @MethodSource("pages")
  void linksLeadSomewhere(Path page) throws IOException {
    Matcher link = LINK.matcher(Pages.FENCE.matcher(Files.readString(page)).replaceAll(""));
    List<String> broken = new ArrayList<>();
    while (link.find()) {
      String target = link.group(1);
      if (!target.contains("://") && !resolves(page, target)) {
        broken.add(target);
      }
    }
    assertEquals(List.of(), broken);
  }

  private static boolean resolves(Path page, String target) throws IOException {
    int hash = target.indexOf('#');
    String path = hash < 0 ? target : target.substring(0, hash);
    Path file = path.isEmpty() ? page : page.resolveSibling(path).normalize();
    return Files.exists(file)
        && (hash < 0 || anchors(Files.readString(file)).contains(target.substring(hash + 1)));
  }

  /** The anchors that GitHub makes of headings. */
  private static Set<String> anchors(String text) {
    Set<String> anchors = new HashSet<>();
    Matcher heading = HEADING.matcher(Pages.FENCE.matcher(text).replaceAll(""));
    while (heading.find()) {
      anchors.add(anchor(heading.group(1)));
    }
    return anchors;
  }

  private static String anchor(String heading) {
    return heading.toLowerCase(Locale.ROOT).replaceAll("[^\\p{L}\\p{N} _-]", "").replace(' ', '-');
  }

  /** A long page begins with links to all its sections. */
  @ParameterizedTest
  @MethodSource("pages")
  void longPagesHaveContents(Path page) throws IOException {
    String text = Files.readString(page);
    if (text.lines().count() <= LONG_PAGE || page.endsWith("CHANGELOG.md")) {
      return;
    }
    String plain = Pages.FENCE.matcher(text).replaceAll("");
    List<String> sections =
        plain
            .lines()
            .filter(line -> line.startsWith("## "))
            .map(line -> anchor(line.substring(3)))
            .toList();
    Matcher links = LINK.matcher(plain.substring(0, plain.indexOf("\n## ")));
    List<String> listed = new ArrayList<>();
    while (links.find()) {
      if (links.group(1).startsWith("#")) {
        listed.add(links.group(1).substring(1));
      }
    }
    assertTrue(listed.containsAll(sections), () -> listed + " is not all of " + sections);
  }

  @ParameterizedTest
  @MethodSource("pages")
  void linesAreShort(Path page) throws IOException {
    List<String> longer =
        Files.readAllLines(page).stream().filter(line -> line.length() > LONGEST_LINE).toList();
    assertEquals(List.of(), longer);
  }

  @Test
  void apiGuideListsEverySettingAndItsDefault() throws IOException {
    String guide = Files.readString(ROOT.resolve("docs/api.md"));
    for (Setting setting : CommunicatorConfig.builder(java.util.Map.of()).build().settings()) {
      String variable = "NCCL4J_" + setting.name().replace('-', '_').toUpperCase(Locale.ROOT);
      String value = setting.value().replaceAll("000 ms$", " s");
      String row = "| `" + setting.name() + "` | `" + variable + "` | " + value + " |";
      assertTrue(guide.contains(row), row);
    }
  }

  // ---------------------------------------------------------------- modules

  /** A module cannot have a class without a package: it gets one. */
  private void compileModule(String name, String source) throws IOException {
    Path descriptor = folder.resolve("module-info.java");
    Files.writeString(descriptor, "module consumer { requires io.nccl4j.runtime; }\n");
    Path file = folder.resolve(name + ".java");
    Files.writeString(file, "package consumer;\n" + source);
    String path = modulePath();
    if (!JSPECIFY_IS_OPTIONAL.matcher(Files.readString(ROOT.resolve("runtime/pom.xml"))).find()) {
      path += File.pathSeparator + location(NullMarked.class);
    }
    compile(List.of(descriptor, file), "-p", path);
  }

  /** What Maven gives to a program that depends on the runtime and needs at run time. */
  private static String modulePath() {
    for (Class<?> type : List.of(Communicator.class, Libc.class)) {
      Path location = location(type);
      assertTrue(
          Files.isRegularFile(location) || Files.exists(location.resolve("module-info.class")),
          location + " has no module descriptor");
    }
    return Stream.of(Communicator.class, Libc.class, Logger.class)
        .map(type -> location(type).toString())
        .collect(Collectors.joining(File.pathSeparator));
  }

  private static Path location(Class<?> type) {
    try {
      return Path.of(type.getProtectionDomain().getCodeSource().getLocation().toURI());
    } catch (URISyntaxException e) {
      throw new AssertionError(e);
    }
  }

  private List<String> moduleCommand(String name, String... arguments) {
    List<String> command = java();
    // Vectors are used only with the optimizing compiler.
    command.add("-XX:TieredStopAtLevel=4");
    command.add("--enable-native-access=io.nccl4j.bindings");
    // Lets the kernels say so if they fall back.
    command.add("-Dorg.apache.logging.log4j.simplelog.level=INFO");
    if (Runtime.version().feature() >= KNOWS_ILLEGAL_ACCESS) {
      command.add("--illegal-native-access=deny");
    }
    String path = folder + File.pathSeparator + modulePath();
    command.addAll(List.of("-p", path, "-m", "consumer/consumer." + name));
    command.addAll(List.of(arguments));
    return command;
  }

  private String runModule(String name) throws Exception {
    return run(moduleCommand(name));
  }

  private static String skipped(String reason) {
    String text = "ReadmeExampleTest: no process ranks here: " + reason;
    System.out.println(text);
    return text;
  }

  // ---------------------------------------------------------------- compiling and running

  private void compile(List<Path> sources, String... options) throws IOException {
    Pages.compile(folder, sources, options);
  }

  private static String javaCommand() {
    return Path.of(System.getProperty("java.home"), "bin", "java").toString();
  }

  private static List<String> java() {
    List<String> command = new ArrayList<>();
    command.add(javaCommand());
    command.addAll(List.of("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"));
    command.addAll(List.of("--add-modules", "jdk.incubator.vector"));
    command.add("-Dlog4j.provider=org.apache.logging.log4j.simple.internal.SimpleProvider");
    return command;
  }

  private String run(List<String> command) throws Exception {
    return run(new ProcessBuilder(command));
  }

  private String run(ProcessBuilder builder) throws Exception {
    Path out = folder.resolve("out");
    return outcome(start(builder, out), out);
  }

  private static Process start(List<String> command, Path out) throws IOException {
    return start(new ProcessBuilder(command), out);
  }

  private static Process start(ProcessBuilder builder, Path out) throws IOException {
    return builder.redirectOutput(out.toFile()).redirectError(errors(out).toFile()).start();
  }

  private static Path errors(Path out) {
    return out.resolveSibling(out.getFileName() + ".err");
  }

  /**
   * What it printed; it must have ended well, warned of nothing but the incubator module, and used
   * the fast kernels that README.md promises with that module.
   */
  private static String outcome(Process process, Path out) throws Exception {
    boolean ended = process.waitFor(120, TimeUnit.SECONDS);
    process.destroyForcibly();
    String errors =
        Files.readAllLines(errors(out)).stream()
            .filter(line -> !line.startsWith("WARNING: Using incubator modules:"))
            .collect(Collectors.joining("\n"));
    assertTrue(ended, () -> "still running after 120 s: " + errors);
    assertEquals(0, process.exitValue(), errors);
    assertFalse(errors.contains("WARNING") || errors.contains("Exception"), errors);
    assertFalse(errors.contains("heap arrays"), errors);
    return Files.readString(out);
  }
}

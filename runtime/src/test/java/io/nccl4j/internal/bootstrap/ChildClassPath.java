package io.nccl4j.internal.bootstrap;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.lang.management.ManagementFactory;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import java.util.zip.ZipEntry;
import java.util.zip.ZipOutputStream;
import org.jspecify.annotations.Nullable;

/**
 * The class path of this JVM for its many children, as fast to load as can be: a training run
 * leaves an archive of the classes behind, which a JVM maps instead of reading and verifying them
 * again. It archives classes of jars only, so directories become jars first. A JVM that finds no
 * archive, or one that does not fit, starts as usual.
 */
public final class ChildClassPath {
  private static final String ARCHIVE = "-XX:SharedArchiveFile=";
  private static final long TRAINING_SECONDS = 30;

  /** The first JDK that speaks of archives under this name, too. */
  private static final int NAMED_AOT = 25;

  private static @Nullable List<String> options;

  private ChildClassPath() {}

  /**
   * The options for the class path, which itself is the last of them.
   *
   * @param training what to run if there is no archive yet: options but the class path, the main
   *     class and its arguments
   * @param input what it reads from its standard input
   */
  public static synchronized List<String> options(List<String> training, String input) {
    if (options == null) {
      List<Path> given =
          Stream.of(System.getProperty("java.class.path").split(File.pathSeparator))
              .map(entry -> Path.of(entry).toAbsolutePath())
              .toList();
      List<String> own = ownArchive();
      try {
        options =
            own.isEmpty()
                ? create(given, training, input)
                : Stream.concat(own.stream(), Stream.of("-cp", join(given))).toList();
      } catch (IOException e) {
        // Nothing can be written here, and children start as usual.
        options = List.of("-cp", join(given));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException(e);
      }
    }
    return options;
  }

  /** What this JVM was told of an archive if it is such a child: its children are told the same. */
  private static List<String> ownArchive() {
    List<String> own = ManagementFactory.getRuntimeMXBean().getInputArguments();
    return own.stream().noneMatch(option -> option.startsWith(ARCHIVE))
        ? List.of()
        : own.stream()
            .filter(option -> option.startsWith(ARCHIVE) || option.startsWith("-Xlog:"))
            .toList();
  }

  private static List<String> create(List<Path> given, List<String> training, String input)
      throws IOException, InterruptedException {
    Path folder = Path.of("target/children", hash(join(given))).toAbsolutePath();
    Files.createDirectories(folder);
    List<Path> jars = new ArrayList<>();
    for (Path entry : given) {
      jars.add(Files.isDirectory(entry) ? folder.resolve(jars.size() + ".jar") : entry);
    }
    Path archive = folder.resolve("classes.jsa");
    Path made = folder.resolve("made");
    // One process after the other: what the first one makes, the others find.
    try (FileChannel channel =
            FileChannel.open(
                folder.resolve("lock"), StandardOpenOption.CREATE, StandardOpenOption.WRITE);
        FileLock lock = channel.lock()) {
      assert lock.isValid();
      String state = state(given);
      if (Files.notExists(made) || !Files.readString(made).equals(state)) {
        Files.deleteIfExists(archive);
        for (int i = 0; i < jars.size(); i++) {
          if (!jars.get(i).equals(given.get(i))) {
            pack(given.get(i), jars.get(i));
          }
        }
        // What cannot be trained is not tried by each process again.
        Files.writeString(made, state);
        train(training, input, join(jars), archive);
      }
    }
    List<String> result = new ArrayList<>();
    if (Files.exists(archive)) {
      result.add(ARCHIVE + archive);
      // Options for modules keep the JVM from using all of it, of which it need not speak.
      result.add("-Xlog:cds*=off");
      if (Runtime.version().feature() >= NAMED_AOT) {
        result.add("-Xlog:aot*=off");
      }
    }
    result.addAll(List.of("-cp", join(jars)));
    return List.copyOf(result);
  }

  private static String join(List<Path> classPath) {
    return classPath.stream().map(Path::toString).collect(Collectors.joining(File.pathSeparator));
  }

  /** This JVM and these files as they are now. */
  private static String state(List<Path> classPath) throws IOException {
    StringBuilder state = new StringBuilder(System.getProperty("java.vm.version"));
    for (Path entry : classPath) {
      try (Stream<Path> files = Files.exists(entry) ? Files.walk(entry) : Stream.empty()) {
        for (Path file : files.filter(Files::isRegularFile).sorted().toList()) {
          state.append(file).append(Files.size(file)).append(Files.getLastModifiedTime(file));
        }
      }
    }
    return hash(state.toString());
  }

  private static String hash(String text) {
    return UUID.nameUUIDFromBytes(text.getBytes(StandardCharsets.UTF_8)).toString();
  }

  private static void pack(Path directory, Path jar) throws IOException {
    Path unfinished = jar.resolveSibling(jar.getFileName() + ".new");
    try (Stream<Path> files = Files.walk(directory);
        OutputStream out = Files.newOutputStream(unfinished);
        ZipOutputStream zip = new ZipOutputStream(out)) {
      zip.setLevel(1);
      for (Path file : files.filter(Files::isRegularFile).sorted().toList()) {
        zip.putNextEntry(new ZipEntry(directory.relativize(file).toString()));
        Files.copy(file, zip);
      }
    }
    Files.move(unfinished, jar, StandardCopyOption.ATOMIC_MOVE);
  }

  private static void train(List<String> training, String input, String classPath, Path archive)
      throws IOException, InterruptedException {
    Path unfinished = archive.resolveSibling("unfinished.jsa");
    List<String> command = new ArrayList<>();
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.addAll(List.of("-XX:ArchiveClassesAtExit=" + unfinished, "-cp", classPath));
    command.addAll(training);
    Path given = archive.resolveSibling("input");
    Files.writeString(given, input);
    Process process =
        new ProcessBuilder(command)
            .redirectInput(given.toFile())
            .redirectErrorStream(true)
            .redirectOutput(archive.resolveSibling("output").toFile())
            .start();
    try {
      if (process.waitFor(TRAINING_SECONDS, TimeUnit.SECONDS)
          && process.exitValue() == 0
          && Files.exists(unfinished)) {
        Files.move(unfinished, archive, StandardCopyOption.ATOMIC_MOVE);
      }
    } finally {
      process.destroyForcibly();
    }
  }
}

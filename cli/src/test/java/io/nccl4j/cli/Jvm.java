package io.nccl4j.cli;

import io.nccl4j.cli.process.ChildCommand;
import io.nccl4j.internal.bootstrap.ChildClassPath;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/** A command line in a JVM of its own. */
record Jvm(Process process, Path out, Path err) implements AutoCloseable {
  /** For what hangs; the slowest command takes 15 s alone, and four times that beside others. */
  private static final long SECONDS = 180;

  private static final String TRAINING = "allreduce --backend host -t 2 -b 8 -e 128 -f 4 -n 5 -w 0";

  static Jvm start(Path folder, String name, Map<String, String> environment, String line)
      throws IOException {
    return start(folder, name, environment, List.of(), line);
  }

  /** Lets another command start it. */
  static Jvm start(
      Path folder, String name, Map<String, String> environment, List<String> by, String line)
      throws IOException {
    List<String> command = new ArrayList<>(by);
    command.addAll(command(line));
    Path out = folder.resolve(name + ".out");
    Path err = folder.resolve(name + ".err");
    ProcessBuilder builder =
        new ProcessBuilder(command).redirectOutput(out.toFile()).redirectError(err.toFile());
    builder.environment().putAll(environment);
    return new Jvm(builder.start(), out, err);
  }

  /** What starts it. */
  static List<String> command(String line) {
    List<String> command = new ArrayList<>(ChildCommand.of(Main.class, List.of(line.split(" "))));
    // What is tested here is not speed: the optimizing compiler would cost more than the rest, and
    // vectors are objects without it. Ranks that see one processor leave it to others sooner.
    command.removeIf(word -> word.contains("jdk.incubator.vector"));
    command.addAll(
        1, List.of("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount=1"));
    int classPath = command.indexOf("-cp");
    List<String> training = new ArrayList<>(command.subList(1, classPath));
    training.add(Main.class.getName());
    training.addAll(List.of(TRAINING.split(" ")));
    command.subList(classPath, classPath + 2).clear();
    command.addAll(classPath, ChildClassPath.options(training, ""));
    return command;
  }

  int await() throws InterruptedException {
    if (!process.waitFor(SECONDS, TimeUnit.SECONDS)) {
      throw new AssertionError("not ended after " + SECONDS + " s: " + said());
    }
    return process.exitValue();
  }

  /** Waits until it has this many children, besides the shell that watches, and gives them. */
  List<ProcessHandle> awaitChildren(int count) throws InterruptedException {
    for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        System.nanoTime() < end && process.isAlive();
        Thread.sleep(10)) {
      List<ProcessHandle> children =
          process.children().filter(child -> !words(child).contains("nccl4j-guard")).toList();
      if (children.size() == count) {
        return children;
      }
    }
    throw new AssertionError("no " + count + " children");
  }

  /** As shells have it for SIGINT in background jobs: a JVM leaves it at that. */
  static boolean isIgnored(int signal) throws IOException {
    String mask =
        Files.readAllLines(Path.of("/proc/self/status")).stream()
            .filter(line -> line.startsWith("SigIgn:"))
            .findFirst()
            .orElseThrow()
            .substring("SigIgn:".length())
            .strip();
    return (Long.parseUnsignedLong(mask, 16) >>> signal - 1 & 1) != 0;
  }

  private static List<String> words(ProcessHandle child) {
    return List.of(child.info().arguments().orElse(new String[0]));
  }

  /** Waits until a line of the output begins with this. */
  void awaitLine(String start) throws IOException, InterruptedException {
    for (long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(SECONDS);
        System.nanoTime() < end && process.isAlive();
        Thread.sleep(10)) {
      if (Files.readString(out).lines().anyMatch(line -> line.startsWith(start))) {
        return;
      }
    }
    throw new AssertionError("no line " + start + "; " + Files.readString(err));
  }

  List<String> outLines() throws IOException {
    return Files.readAllLines(out);
  }

  /** The lines of the output that are no comments. */
  List<String> rows() throws IOException {
    return outLines().stream().filter(line -> !line.startsWith("#")).toList();
  }

  /** Its output and its standard error, for a message. */
  String said() {
    try {
      return Files.readString(out) + Files.readString(err);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
  }

  /** The lines of the standard error, without what the JVM itself says. */
  List<String> errLines() throws IOException {
    return Files.readAllLines(err).stream().filter(line -> !line.startsWith("WARNING:")).toList();
  }

  static void awaitEnd(List<ProcessHandle> processes, long millis) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
    for (ProcessHandle process : processes) {
      while (process.isAlive()) {
        if (System.nanoTime() > end) {
          throw new AssertionError("process " + process.pid() + " lives on");
        }
        Thread.sleep(10);
      }
    }
  }

  @Override
  public void close() {
    List<ProcessHandle> descendants = process.descendants().toList();
    process.destroyForcibly();
    descendants.forEach(ProcessHandle::destroyForcibly);
  }
}

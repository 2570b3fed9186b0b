package io.nccl4j.internal.bootstrap;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A child process that runs a main class of the tests; its output is read line by line. */
public final class ChildJvm implements AutoCloseable {
  private static final String END = "<end>";
  private static final int SIGCONT = 18;
  private static final int SIGSTOP = 19;
  private static final String NATIVE = "--enable-native-access=ALL-UNNAMED";

  /** Most code runs too seldom for a compiler. */
  private static final List<String> FRUGAL =
      List.of("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:CompileThresholdScaling=10");

  private final Process process;
  private final BlockingQueue<String> lines = new LinkedBlockingQueue<>();
  private final List<String> seen = new ArrayList<>();

  private ChildJvm(Process process) {
    this.process = process;
    Thread.ofPlatform().daemon().name("child-" + process.pid()).start(this::read);
  }

  /** Starts a main class with native access. */
  public static ChildJvm start(Class<?> main, Object... arguments) {
    return start(List.of(NATIVE), main, arguments);
  }

  /** Starts a main class with native access and these variables. */
  public static ChildJvm start(
      Map<String, String> environment, Class<?> main, Object... arguments) {
    return start(List.of(), environment, List.of(NATIVE), main, arguments);
  }

  /** Starts a main class with native access in a shell that has run a command before. */
  public static ChildJvm startAfter(String shell, Class<?> main, Object... arguments) {
    return start(
        List.of("bash", "-c", shell + "; exec \"$@\"", "bash"),
        Map.of(),
        List.of(NATIVE),
        main,
        arguments);
  }

  /** Starts a main class with native access by another command, such as one that enters a room. */
  public static ChildJvm startInside(
      List<String> command, Map<String, String> environment, Class<?> main, Object... arguments) {
    return start(command, environment, List.of(NATIVE), main, arguments);
  }

  /** Starts a main class with these options of the virtual machine. */
  public static ChildJvm start(List<String> options, Class<?> main, Object... arguments) {
    return start(List.of(), Map.of(), options, main, arguments);
  }

  private static ChildJvm start(
      List<String> wrapper,
      Map<String, String> environment,
      List<String> options,
      Class<?> main,
      Object... arguments) {
    List<String> command = new ArrayList<>(wrapper);
    command.add(Path.of(System.getProperty("java.home"), "bin", "java").toString());
    command.add("-Xmx128m");
    command.addAll(FRUGAL);
    command.addAll(options);
    command.addAll(classPath());
    command.add(main.getName());
    for (Object argument : arguments) {
      command.add(argument.toString());
    }
    try {
      ProcessBuilder builder = new ProcessBuilder(command).redirectErrorStream(true);
      builder.environment().putAll(environment);
      return new ChildJvm(builder.start());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** The options for the class path of a child with the serial collector. */
  public static List<String> classPath() {
    List<String> training = new ArrayList<>(FRUGAL);
    training.addAll(List.of(NATIVE, "io.nccl4j.internal.host.RankMain"));
    return ChildClassPath.options(training, "threads\nexit\n");
  }

  private void read() {
    try (BufferedReader reader =
        new BufferedReader(
            new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = reader.readLine(); line != null; line = reader.readLine()) {
        lines.add(line);
      }
      lines.add(END);
    } catch (IOException e) {
      lines.add(END + " " + e);
    }
  }

  /** Waits up to 30 s for a line that starts like this, and returns the rest of it. */
  public String expect(String prefix) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (true) {
      String line = lines.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
      if (line != null && line.startsWith(prefix)) {
        return line.substring(prefix.length()).strip();
      }
      if (line == null || line.startsWith(END)) {
        throw new AssertionError(
            "no line '" + prefix + "' but " + seen + (line == null ? "" : END));
      }
      seen.add(line);
    }
  }

  /** Waits up to 30 s for a line that starts with one of these, and returns all of it. */
  public String expectAny(String... prefixes) throws InterruptedException {
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
    while (true) {
      String line = lines.poll(end - System.nanoTime(), TimeUnit.NANOSECONDS);
      if (line == null || line.startsWith(END)) {
        throw new AssertionError(
            "no line " + List.of(prefixes) + " but " + seen + (line == null ? "" : END));
      }
      for (String prefix : prefixes) {
        if (line.startsWith(prefix)) {
          return line;
        }
      }
      seen.add(line);
    }
  }

  /** Sends a line to its standard input. */
  public void tell(String line) throws IOException {
    process.getOutputStream().write((line + "\n").getBytes(StandardCharsets.UTF_8));
    process.getOutputStream().flush();
  }

  /** Its process id. */
  public long pid() {
    return process.pid();
  }

  /** Ends it with SIGKILL, without waiting. */
  public void kill() {
    process.destroyForcibly();
  }

  /** Stops it, until {@link #resume}; returns when all its threads stand still. */
  public void stop() {
    signal(SIGSTOP);
    while (process.isAlive() && runs()) {
      Thread.onSpinWait();
    }
  }

  private boolean runs() {
    try (Stream<Path> tasks = Files.list(Path.of("/proc/" + process.pid() + "/task"))) {
      for (Path task : tasks.toList()) {
        // "tid (name) state ...": the name may hold anything.
        String stat = Files.readString(task.resolve("stat"));
        if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
          return true;
        }
      }
      return false;
    } catch (IOException | UncheckedIOException e) {
      // A thread, or the process, has just ended.
      return process.isAlive();
    }
  }

  /** Lets it go on. */
  public void resume() {
    signal(SIGCONT);
  }

  @SuppressWarnings("restricted") // signals that the project itself never sends
  private void signal(int signal) {
    Linker linker = Linker.nativeLinker();
    MethodHandle kill =
        linker.downcallHandle(
            linker.defaultLookup().find("kill").orElseThrow(),
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
    int result;
    try {
      result = (int) kill.invokeExact((int) process.pid(), signal);
    } catch (Throwable e) {
      throw new AssertionError(e);
    }
    if (result != 0) {
      throw new AssertionError("no signal " + signal + " to process " + process.pid());
    }
  }

  /** Waits for its end. */
  public int await() throws InterruptedException {
    if (!process.waitFor(30, TimeUnit.SECONDS)) {
      throw new AssertionError("still running after " + seen);
    }
    return process.exitValue();
  }

  @Override
  public void close() {
    process.destroyForcibly();
  }
}

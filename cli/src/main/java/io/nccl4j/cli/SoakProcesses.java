package io.nccl4j.cli;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.selftest.Soak;
import io.nccl4j.cli.process.ChildCommand;
import io.nccl4j.cli.process.LineRelay;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * The processes with the ranks of the soak, which it talks with by lines on their standard input
 * and output. They end with this one: their input ends then.
 */
final class SoakProcesses implements Soak.Processes, AutoCloseable {
  /** What a process's lines for the parent begin with; others are for the user. */
  private static final Set<String> ANSWERS = Set.of("joined", "done", "problem", "usage");

  /**
   * A heap that does not grow, so that it can be seen whether anything else does. And what the
   * compilers have freed, tens of MiB, goes back to the system: the C library keeps it otherwise.
   */
  private static final List<String> MEMORY =
      List.of(
          "-Xms128m",
          "-Xmx128m",
          "-XX:+AlwaysPreTouch",
          "-XX:-UseDynamicNumberOfCompilerThreads",
          "-XX:TrimNativeHeapInterval=1000");

  private static final long GRACE_SECONDS = 5;

  private record Child(Process process, PrintStream input) {}

  private final Context context;
  private final List<String> command;
  private final Child[] children;
  private final BlockingQueue<Soak.Event> events = new LinkedBlockingQueue<>();
  private final Thread hook = new Thread(this::killAll, "end-processes");

  /** Starts as many processes as there are, each with these arguments. */
  SoakProcesses(Context context, int count, List<String> arguments) {
    this.context = context;
    this.command = ChildCommand.of(context.main(), arguments);
    this.command.addAll(1, MEMORY);
    this.children = new Child[count];
    Runtime.getRuntime().addShutdownHook(hook);
    for (int process = 0; process < count; process++) {
      replace(process);
    }
  }

  @Override
  public void replace(int process) {
    try {
      ProcessBuilder builder = new ProcessBuilder(command);
      builder.environment().putAll(context.environment());
      Process started = builder.start();
      Child child =
          new Child(
              started, new PrintStream(started.getOutputStream(), true, StandardCharsets.UTF_8));
      synchronized (children) {
        children[process] = child;
      }
      String prefix = "[process " + process + "] ";
      LineRelay.start(started.getErrorStream(), prefix, context.err());
      Thread output =
          LineRelay.start(started.getInputStream(), line -> line(process, child, prefix, line));
      Thread.ofPlatform()
          .daemon()
          .name("wait-" + process)
          .start(() -> awaitEnd(process, child, output));
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "cannot start " + command.getFirst() + ": " + e,
                  "check the limits on processes and memory")
              .causedBy(e);
    }
  }

  private void line(int process, Child child, String prefix, String line) {
    if (ANSWERS.contains(line.split(" ", 2)[0])) {
      add(child, new Soak.Event(process, line, 0));
    } else {
      context.err().println(prefix + line);
    }
  }

  private void awaitEnd(int process, Child child, Thread output) {
    try {
      int code = child.process().waitFor();
      // What it said before comes first.
      output.join();
      add(child, new Soak.Event(process, null, code));
    } catch (InterruptedException e) {
      // Nobody interrupts it; the run would find that the process says nothing.
      Thread.currentThread().interrupt();
    }
  }

  /** Of a process that was replaced nobody wants to hear any more. */
  private void add(Child child, Soak.Event event) {
    synchronized (children) {
      if (children[event.process()] == child) {
        events.add(event);
      }
    }
  }

  private Child child(int process) {
    synchronized (children) {
      return children[process];
    }
  }

  @Override
  public void say(int process, String line) {
    child(process).input().println(line);
  }

  @Override
  public Soak.@Nullable Event next(Duration patience) throws InterruptedException {
    return events.poll(patience.toNanos(), TimeUnit.NANOSECONDS);
  }

  @Override
  public void kill(int process) {
    child(process).process().destroyForcibly();
  }

  @Override
  public void stop(int process, Duration lasts) {
    // A shell, so that it goes on even if this process is killed meanwhile.
    String script =
        String.format(
            Locale.ROOT,
            "kill -STOP %1$d && sleep %2$.3f; kill -CONT %1$d",
            child(process).process().pid(),
            lasts.toMillis() / 1e3);
    shell(script);
  }

  @Override
  public void dump(int process) {
    shell("kill -QUIT " + child(process).process().pid());
  }

  private static void shell(String script) {
    try {
      // A process that has ended since is not the shell's fault, nor of interest.
      new ProcessBuilder("sh", "-c", script)
          .redirectErrorStream(true)
          .redirectOutput(ProcessBuilder.Redirect.DISCARD)
          .start();
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException("cannot send signals: " + e, "a shell is needed").causedBy(e);
    }
  }

  private void killAll() {
    List<Child> all;
    synchronized (children) {
      all = new ArrayList<>(List.of(children));
    }
    all.forEach(child -> child.process().destroyForcibly());
  }

  /** Ends all. */
  @Override
  public void close() {
    for (Child child : children) {
      // A process ends when nobody is left who could say anything to it.
      child.input().close();
    }
    try {
      for (Child child : children) {
        if (!child.process().waitFor(GRACE_SECONDS, TimeUnit.SECONDS)) {
          child.process().destroyForcibly();
        }
      }
    } catch (InterruptedException e) {
      killAll();
      Thread.currentThread().interrupt();
    }
    Runtime.getRuntime().removeShutdownHook(hook);
  }
}

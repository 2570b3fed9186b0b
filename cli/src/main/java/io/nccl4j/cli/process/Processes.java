package io.nccl4j.cli.process;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** Processes that this one has started. */
public final class Processes {
  private static final long GRACE_SECONDS = 2;

  private Processes() {}

  /** Asks them, and what they started, to end, and after a moment makes them. */
  public static void end(List<Process> processes) {
    List<ProcessHandle> all =
        processes.stream()
            .map(Process::toHandle)
            .flatMap(one -> Stream.concat(one.descendants(), Stream.of(one)))
            .filter(ProcessHandle::isAlive)
            .toList();
    all.forEach(ProcessHandle::destroy);
    CompletableFuture<?>[] ends =
        all.stream().map(ProcessHandle::onExit).toArray(CompletableFuture[]::new);
    CompletableFuture.allOf(ends).completeOnTimeout(null, GRACE_SECONDS, TimeUnit.SECONDS).join();
    all.forEach(ProcessHandle::destroyForcibly);
  }
}

package io.nccl4j.internal.bootstrap;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;

/** Runs one thread per rank. */
public final class Ranks {
  private Ranks() {}

  /** Runs them all on platform threads and returns their results in order. */
  public static <T> List<T> run(List<Callable<T>> ranks) throws Exception {
    return run(Executors.newCachedThreadPool(), ranks);
  }

  /** Runs them all on these threads, waits for their end and returns the results in order. */
  static <T> List<T> run(ExecutorService executor, List<Callable<T>> ranks) throws Exception {
    try (executor) {
      List<Future<T>> futures = new ArrayList<>();
      for (Callable<T> rank : ranks) {
        futures.add(executor.submit(rank));
      }
      List<T> results = new ArrayList<>();
      for (Future<T> future : futures) {
        results.add(get(future));
      }
      return results;
    }
  }

  private static <T> T get(Future<T> future) throws Exception {
    try {
      return future.get(30, TimeUnit.SECONDS);
    } catch (ExecutionException e) {
      if (e.getCause() instanceof Exception cause) {
        throw cause;
      }
      throw e;
    }
  }
}

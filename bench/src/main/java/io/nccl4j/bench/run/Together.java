package io.nccl4j.bench.run;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Supplier;

/** Calls that wait for all ranks, made for several ranks by one thread. */
final class Together {
  private Together() {}

  /**
   * Makes the calls, each on a thread of its own if there are several, and returns the results in
   * order.
   *
   * @throws RuntimeException the first failure, when all calls have ended
   */
  static <T> List<T> call(List<Supplier<T>> calls) {
    if (calls.size() == 1) {
      return new ArrayList<>(List.of(calls.getFirst().get()));
    }
    List<CompletableFuture<T>> futures =
        calls.stream()
            .map(
                call ->
                    CompletableFuture.supplyAsync(
                        call, task -> Thread.ofPlatform().daemon().name("together").start(task)))
            .toList();
    try {
      CompletableFuture.allOf(futures.toArray(CompletableFuture[]::new)).join();
    } catch (CompletionException e) {
      throw e.getCause() instanceof RuntimeException cause ? cause : e;
    }
    return new ArrayList<>(futures.stream().map(CompletableFuture::join).toList());
  }
}

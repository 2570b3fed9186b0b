package io.nccl4j.bench.run;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.AbortedException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(30)
class ThreadCrewTest {
  private static final int THREADS = 4;

  @Test
  void allGetTheSameNumbers() throws Exception {
    ThreadCrew.Meeting meeting = new ThreadCrew.Meeting(new ThreadBarrier(THREADS), THREADS);
    try (ExecutorService executor = Executors.newFixedThreadPool(THREADS)) {
      List<Future<Double>> sums = new ArrayList<>();
      for (int t = 0; t < THREADS; t++) {
        ThreadCrew crew = new ThreadCrew(meeting, t);
        int thread = t;
        sums.add(
            executor.submit(
                () -> {
                  double total = 0;
                  for (int i = 0; i < 1000; i++) {
                    assertEquals(i + THREADS - 1, crew.max(i + thread));
                    total += crew.sum(thread * 0.1);
                    crew.barrier();
                  }
                  return total;
                }));
      }
      for (Future<Double> sum : sums) {
        assertEquals(sums.getFirst().get(), sum.get());
      }
    }
  }

  @Test
  void aFailedThreadSendsTheOthersAway() throws Exception {
    ThreadBarrier barrier = new ThreadBarrier(2);
    try (ExecutorService executor = Executors.newFixedThreadPool(1)) {
      Future<AbortedException> waiting =
          executor.submit(() -> assertThrows(AbortedException.class, barrier::await));
      IllegalStateException cause = new IllegalStateException("x");
      barrier.breakBecauseOf(cause);
      assertSame(cause, waiting.get(10, TimeUnit.SECONDS).getCause());
    }
  }
}

package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.Communicators;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Test;

/** The threads on which {@link Communicators#run} runs tasks. */
class RankThreadsTest {
  private static final Path STATUS = Path.of("/proc/thread-self/status");

  /** The processors that the calling thread may use, as Linux writes them. */
  private static String allowed() {
    try {
      return Files.readAllLines(STATUS).stream()
          .filter(line -> line.startsWith("Cpus_allowed_list"))
          .findFirst()
          .orElseThrow();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Threads inherit the processors of the one that starts them; those of pools outlive the task,
   * and serve the whole process.
   */
  @Test
  void whatATaskStartsMayUseAllProcessors() throws Exception {
    Assumptions.assumeTrue(Files.exists(STATUS), "no " + STATUS);
    int nranks = 2;
    CyclicBarrier together = new CyclicBarrier(nranks);
    List<String> found = Collections.synchronizedList(new ArrayList<>());
    try (ThreadPoolExecutor pool =
            new ThreadPoolExecutor(
                0, nranks, 1, TimeUnit.MINUTES, new ArrayBlockingQueue<>(1, true));
        Communicators ranks = TestBackend.communicators(nranks)) {
      ranks.run(
          rank -> {
            Waits.await(together);
            found.add(allowed());
            Thread.ofPlatform().start(() -> found.add(allowed())).join();
            pool.submit(() -> found.add(allowed())).get();
          });
    }
    assertEquals(Collections.nCopies(3 * nranks, allowed()), found);
  }
}

package io.nccl4j.bench.machine;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Locale;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;

class CompilerThreadsTest {
  private static final long ENOUGH_NANOS = 20_000_000_000L;

  /** If a JDK renamed its compilers' threads, a warm-up would end too early. */
  @Test
  @EnabledOnOs(OS.LINUX)
  void compilersAreSeenAtWork() {
    long start = System.nanoTime();
    boolean seen = false;
    int some = 0;
    while (!seen && System.nanoTime() - start < ENOUGH_NANOS) {
      // Code that is not compiled yet, or not as it could be.
      some += String.format(Locale.ROOT, "%08x %s %.3f", some, "text", some / 7.0).hashCode();
      seen = CompilerThreads.anyRuns();
    }
    assertTrue(seen, () -> "no compiler was seen in " + ENOUGH_NANOS / 1_000_000_000 + " s");
    assertTrue(CompilerThreads.compileMillis() > 0);
  }
}

package io.nccl4j.cli;

import java.io.IOException;
import java.io.InputStream;

/**
 * Ends this process when the one that started it is gone, however that went: the parent holds the
 * other end of the standard input and never writes to it, so that its end is the parent's.
 */
final class ParentWatch {
  private ParentWatch() {}

  /** Watches from now on. */
  static void start() {
    Thread.ofPlatform().daemon().name("parent-watch").start(() -> await(System.in));
  }

  private static void await(InputStream in) {
    try {
      while (in.read() >= 0) {
        // Nobody writes; a byte would mean nothing.
      }
    } catch (IOException e) {
      // A pipe that cannot be read has no parent behind it either.
      System.err.println("nccl4j: the process that started this one cannot be watched: " + e);
    }
    // No hooks: nobody is left to see what they would tidy up, and they might wait for peers.
    Runtime.getRuntime().halt(ExitCode.INTERNAL.number());
  }
}

package io.nccl4j.internal.core;

import org.apache.logging.log4j.simple.SimpleLoggerContextFactory;
import org.apache.logging.log4j.spi.Provider;

/**
 * The Log4j provider of programs that have no other: errors go to standard error, and what is less
 * is not printed. Log4j falls back to the same logger by itself, but then begins each program with
 * an error of its own: that it found no provider.
 *
 * <p>It yields to every other provider.
 */
public final class ErrorsToStderr extends Provider {
  /** Called by Log4j. */
  public ErrorsToStderr() {
    super(Integer.MIN_VALUE, CURRENT_VERSION, SimpleLoggerContextFactory.class);
  }
}

package io.nccl4j.internal.schedule;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;

/**
 * Makes copies of {@link DirectCalls} that are what a program is that has just been loaded: the JVM
 * interprets them, and enters the methods they call at their own beginnings. Code that is compiled
 * together with what it calls never does, and leaves there what has become stale: calls that the
 * JVM links anew, at some ten microseconds each, when somebody comes by.
 */
final class FreshCalls {
  private static final byte[] CODE = code();

  private FreshCalls() {}

  private static byte[] code() {
    String file = DirectCalls.class.getSimpleName() + ".class";
    try (InputStream in = DirectCalls.class.getResourceAsStream(file)) {
      if (in == null) {
        throw new IOException(file + " is missing beside its class");
      }
      return in.readAllBytes();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /** A copy that nobody has called yet; the JVM unloads it when it is not referred to any more. */
  static Calls make() {
    try {
      return (Calls)
          MethodHandles.lookup()
              .defineHiddenClass(CODE, false)
              .lookupClass()
              .getDeclaredConstructor()
              .newInstance();
    } catch (ReflectiveOperationException e) {
      throw new AssertionError(e);
    }
  }
}

package io.nccl4j.internal.observe;

import io.nccl4j.Communicator;
import io.nccl4j.NcclException;
import java.util.function.Supplier;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/** Shows communicators to JMX, whose module a runtime image may lack. */
public interface Beans {
  /**
   * What a bean shows besides what any thread may ask a communicator.
   *
   * @param failure why it failed, without telling the program; null if it has not
   */
  record Source(Communicator communicator, Supplier<@Nullable NcclException> failure) {}

  /** Shows a rank; returns what ends that, which may be called more than once. */
  Runnable show(Source rank);

  /** The platform's MBean server, which this starts; without the module a warning, and nothing. */
  static Beans find() {
    return Holder.FOUND;
  }

  /** Loaded when somebody wants beans. */
  final class Holder {
    private static final Logger LOG = LogManager.getLogger(Beans.class);
    private static final Beans FOUND = load();

    private Holder() {}

    private static Beans load() {
      try {
        return (Beans)
            Class.forName("io.nccl4j.internal.observe.jmx.PlatformBeans")
                .getDeclaredConstructor()
                .newInstance();
      } catch (ReflectiveOperationException | LinkageError e) {
        LOG.warn("jmx is on, but java.management is not in this Java runtime: {}", e.toString());
        return rank -> () -> {};
      }
    }
  }
}

package io.nccl4j.internal.observe.jmx;

import io.nccl4j.internal.observe.Beans;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import javax.management.InstanceAlreadyExistsException;
import javax.management.InstanceNotFoundException;
import javax.management.JMException;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/**
 * MXBeans of the platform's server. What the server refuses is logged: nobody's work ends for it.
 */
public final class PlatformBeans implements Beans {
  private static final Logger LOG = LogManager.getLogger(PlatformBeans.class);
  private static final String PROCESS = "io.nccl4j:type=Process";

  private final MBeanServer server = ManagementFactory.getPlatformMBeanServer();

  /** Those that are shown. */
  private final List<Source> shown = new ArrayList<>();

  /** Made by name. */
  public PlatformBeans() {}

  @Override
  public synchronized Runnable show(Source rank) {
    try {
      ObjectName name = register(rank);
      shown.add(rank);
      if (shown.size() == 1) {
        showProcess();
      }
      return () -> hide(rank, name);
    } catch (JMException e) {
      LOG.warn("{} is not shown to JMX", rank.communicator(), e);
      return () -> {};
    }
  }

  private void showProcess() {
    try {
      server.registerMBean(new ProcessBean(this), new ObjectName(PROCESS));
    } catch (JMException e) {
      LOG.warn("the process is not shown to JMX", e);
    }
  }

  private ObjectName register(Source rank) throws JMException {
    String name =
        "io.nccl4j:type=Communicator,name="
            + quoted(rank.communicator().name())
            + ",rank="
            + rank.communicator().rank();
    for (int instance = 1; ; instance++) {
      try {
        ObjectName tried = new ObjectName(instance == 1 ? name : name + ",instance=" + instance);
        return server.registerMBean(new CommunicatorBean(rank), tried).getObjectName();
      } catch (InstanceAlreadyExistsException e) {
        LOG.trace("another communicator has this name and rank", e);
      }
    }
  }

  /** Names with characters that separate are quoted. */
  private static String quoted(String name) {
    return name.isEmpty() || name.chars().anyMatch(c -> ",=:\"*?\n".indexOf(c) >= 0)
        ? ObjectName.quote(name)
        : name;
  }

  private synchronized void hide(Source rank, ObjectName name) {
    if (!shown.remove(rank)) {
      return;
    }
    unregister(name);
    if (shown.isEmpty()) {
      try {
        unregister(new ObjectName(PROCESS));
      } catch (JMException e) {
        throw new IllegalStateException(e);
      }
    }
  }

  private void unregister(ObjectName name) {
    try {
      server.unregisterMBean(name);
    } catch (InstanceNotFoundException e) {
      LOG.debug("{} was unregistered by somebody else", name, e);
    } catch (JMException e) {
      LOG.warn("{} cannot be unregistered", name, e);
    }
  }

  /** Those that are shown now. */
  synchronized List<Source> shown() {
    return List.copyOf(shown);
  }
}

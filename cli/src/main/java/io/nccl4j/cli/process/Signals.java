package io.nccl4j.cli.process;

import io.nccl4j.launch.RankProcesses;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Passes the signals that end a process on to the processes that it has started, instead of ending
 * this one. A signal that this process ignores, as under nohup, stays ignored.
 *
 * <p>By reflection: {@code sun.misc.Signal} is an exported class, but javac warns of it, whatever
 * its options are.
 */
public final class Signals implements AutoCloseable {
  private static final List<String> NAMES = List.of("HUP", "INT", "TERM");
  private static final int SIGNAL_BASE = 128;

  private record Former(Object signal, Object handler) {}

  private final List<Former> former = new ArrayList<>();
  private final Method handle;
  private int exitCode;
  private String received = "";
  private @Nullable RankProcesses receiver;

  private Signals() throws ReflectiveOperationException {
    Class<?> signal = Class.forName("sun.misc.Signal");
    Class<?> handler = Class.forName("sun.misc.SignalHandler");
    this.handle = signal.getMethod("handle", signal, handler);
    Method number = signal.getMethod("getNumber");
    for (String name : NAMES) {
      Object one = signal.getConstructor(String.class).newInstance(name);
      int code = SIGNAL_BASE + (int) number.invoke(one);
      Object passing =
          Proxy.newProxyInstance(
              handler.getClassLoader(),
              new Class<?>[] {handler},
              (proxy, method, arguments) -> {
                receive(name, code);
                return null;
              });
      try {
        former.add(new Former(one, handle.invoke(null, one, passing)));
      } catch (InvocationTargetException e) {
        // With -Xrs the JVM leaves signals alone. They end this process, and so the others.
        continue;
      }
    }
  }

  /** Takes signals from now on, and keeps them. */
  public static Signals take() {
    try {
      return new Signals();
    } catch (ReflectiveOperationException e) {
      throw new IllegalStateException(e);
    }
  }

  private synchronized void receive(String name, int code) {
    received = name;
    exitCode = code;
    if (receiver != null) {
      receiver.stop(name);
    }
  }

  /** Passes signals on, one that came before, too. */
  public synchronized void passTo(RankProcesses processes) {
    receiver = processes;
    if (!received.isEmpty()) {
      processes.stop(received);
    }
  }

  /** 128 + n if signal n came, the last one; else 0. */
  public synchronized int exitCode() {
    return exitCode;
  }

  /** The name of the signal that came last, or an empty string. */
  public synchronized String received() {
    return received;
  }

  @Override
  public void close() {
    for (Former one : former) {
      try {
        handle.invoke(null, one.signal(), one.handler());
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException(e);
      }
    }
  }
}

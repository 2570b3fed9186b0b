package io.nccl4j.schedule;

import io.nccl4j.Group;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.lang.reflect.UndeclaredThrowableException;
import org.jspecify.annotations.Nullable;

/**
 * Calls as code makes them that the compilers know nothing about. A loop that is compiled together
 * with what it calls leaves the methods' own entries as they were: those are what a program's first
 * calls go through.
 */
final class Outside {
  private static final Method START_GROUP;

  static {
    try {
      START_GROUP = Group.class.getMethod("start");
    } catch (NoSuchMethodException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private Outside() {}

  /** The target behind reflective calls, into which nothing is inlined. */
  static <T> T of(Class<T> type, T target) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, arguments) -> invoke(method, target, arguments)));
  }

  /** {@link Group#start()} in the same way, which opens one behind reflective calls. */
  static Group startGroup() {
    try {
      return of(Group.class, (Group) invoke(START_GROUP, null));
    } catch (RuntimeException | Error e) {
      throw e;
    } catch (Throwable e) {
      throw new UndeclaredThrowableException(e);
    }
  }

  private static Object invoke(Method method, @Nullable Object target, Object... arguments)
      throws Throwable {
    try {
      return method.invoke(target, arguments);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }
}

package io.nccl4j.internal.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Classes that are defined more than once. Each copy has its own profile, and the JIT compiler
 * optimises it for what that copy has seen.
 */
public final class Templates {
  /** A copy of each kind of block fold; one for all types and reductions, made when first used. */
  private static final Map<Class<?>, Class<? extends BlockFold>> FOLDS = new ConcurrentHashMap<>();

  private Templates() {}

  /** A fold of the same type and reduction by a copy of its class. */
  static BlockFold copy(BlockFold fold) {
    try {
      return FOLDS
          .computeIfAbsent(fold.getClass(), Templates::define)
          .getDeclaredConstructor(DataType.class, ReduceOp.Kind.class)
          .newInstance(fold.type, fold.kind);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no copy of " + fold, e);
    }
  }

  private static Class<? extends BlockFold> define(Class<?> template) {
    try {
      return MethodHandles.lookup()
          .defineHiddenClass(bytes(template), false)
          .lookupClass()
          .asSubclass(BlockFold.class);
    } catch (IllegalAccessException e) {
      throw new LinkageError("no copy of " + template, e);
    }
  }

  /** The class file of a class of this module. */
  public static byte[] bytes(Class<?> template) {
    String name = template.getSimpleName() + ".class";
    try (InputStream in = template.getResourceAsStream(name)) {
      if (in == null) {
        throw new NoClassDefFoundError(template.getName());
      }
      return in.readAllBytes();
    } catch (IOException e) {
      throw new LinkageError("cannot read " + template, e);
    }
  }
}

package io.nccl4j.internal.host.kernel;

import java.io.IOException;
import java.io.InputStream;

/**
 * The bytes of classes that are defined once more: a copy has a profile of its own, by which the
 * compiler decides what it makes of it.
 */
public final class Templates {
  private Templates() {}

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

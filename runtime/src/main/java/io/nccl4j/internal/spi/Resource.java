package io.nccl4j.internal.spi;

import org.jspecify.annotations.Nullable;

/** What operations use, and must stay open until they have run: memory, or a kernel. */
public interface Resource {
  /** Whether it was closed, or something that it needs. */
  boolean isClosed();

  /** Whether it is {@code whole}, lies in it or needs it. */
  boolean isPartOf(Object whole);

  /** Notes that a graph uses it, which must see for ever that it was closed. */
  default void capture() {}

  /** Whether something is a resource and part of {@code whole}. */
  static boolean isPart(@Nullable Object part, Object whole) {
    return part instanceof Resource resource && resource.isPartOf(whole);
  }
}

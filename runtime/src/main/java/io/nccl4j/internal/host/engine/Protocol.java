package io.nccl4j.internal.host.engine;

import java.util.Locale;

/** How the data of an operation travels; the names are those of {@code NCCL4J_PROTO}. */
public enum Protocol {
  /** In the slot of an outbox or lane, with the word that says it is there. */
  LL,
  /** Straight between the users' buffers; through staging areas where memory is private. */
  DIRECT,
  /** As direct, but results are written past the caches. */
  STREAM,
  /** Piece by piece through staging areas, whatever memory it is. */
  STAGED;

  /** Its name in settings and tables. */
  public String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}

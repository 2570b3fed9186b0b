package io.nccl4j.internal.host.engine;

import java.util.Locale;

/** Which rank does what; the names are those of {@code NCCL4J_ALGO}. */
public enum Algorithm {
  /** Each rank takes what it needs from every rank that has it, and makes its own result. */
  FLAT,
  /** Each rank makes a share of the result for all. */
  SHARE;

  /** Its name in settings and tables. */
  public String label() {
    return name().toLowerCase(Locale.ROOT);
  }
}

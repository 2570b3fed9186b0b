package io.nccl4j.bench.report;

import java.util.Locale;

/** What a comparison says of one line. */
public enum Verdict {
  /** It takes less time than before. */
  BETTER,
  /** No relevant difference was found. */
  SAME,
  /** It takes more time than before. */
  WORSE,
  /** A difference was found, but there are too few runs to tell it from what runs differ by. */
  UNSURE,
  /** The processors were not equally far apart. */
  NOT_COMPARABLE,
  /** Elements are wrong, whatever the time. */
  WRONG;

  /** For people and JSON. */
  public String label() {
    return name().toLowerCase(Locale.ROOT).replace('_', ' ');
  }
}

package io.nccl4j.bindings;

import java.util.List;

/**
 * A shared library that could not be loaded from anywhere.
 *
 * @param name file name by which it was asked for
 * @param attempts what was tried, in this order; never empty
 */
public record LibraryNotFound(String name, List<Attempt> attempts) implements LibraryResult {
  /**
   * One place that did not serve.
   *
   * @param source the rule that led there
   * @param place path, pattern or bare name
   * @param reason why it did not serve
   */
  public record Attempt(LoadedLibrary.Source source, String place, String reason) {
    /** The place and the reason; the dynamic linker's reasons begin with the place. */
    @Override
    public String toString() {
      return reason.startsWith(place + ": ") ? reason : place + ": " + reason;
    }
  }

  /** Copies the list. */
  public LibraryNotFound {
    attempts = List.copyOf(attempts);
  }

  /**
   * One line for the library and one for each attempt.
   *
   * @return text for users
   */
  public String message() {
    StringBuilder text = new StringBuilder("cannot load ").append(name).append("; searched:");
    for (Attempt attempt : attempts) {
      text.append("\n  ").append(label(attempt.source())).append(": ").append(attempt);
    }
    return text.toString();
  }

  @Override
  public LoadedLibrary orElseThrow() {
    throw new LibraryNotFoundException(this);
  }

  private static String label(LoadedLibrary.Source source) {
    return switch (source) {
      case SETTING -> "setting";
      case LD_LIBRARY_PATH -> "LD_LIBRARY_PATH";
      case SYSTEM -> "system loader";
      case WELL_KNOWN -> "well-known place";
    };
  }
}

package io.nccl4j.bindings;

import java.nio.file.Path;
import java.util.List;
import java.util.Optional;

/**
 * A shared library to find, and where to look for it.
 *
 * @param names file names to try, best first, such as {@code libnccl.so.2}
 * @param function a function that the library must have, by which it is recognised
 * @param setting path of the library, or of a directory that holds it, as given by the user. If it
 *     is set, no other place is tried
 * @param wellKnown places to try last: paths of files, in which {@code *}, {@code ?}, {@code [...]}
 *     and <code>{a,b}</code> stand for parts of one directory's or file's name, and a backslash
 *     takes the meaning from the next character
 */
public record LibraryRequest(
    List<String> names, String function, Optional<Path> setting, List<String> wellKnown) {
  /**
   * Checks and copies the lists.
   *
   * @throws IllegalArgumentException if there is no name, or one with a slash
   */
  public LibraryRequest {
    names = List.copyOf(names);
    wellKnown = List.copyOf(wellKnown);
    if (names.isEmpty() || names.stream().anyMatch(name -> name.isEmpty() || name.contains("/"))) {
      throw new IllegalArgumentException("not names of library files: " + names);
    }
  }
}

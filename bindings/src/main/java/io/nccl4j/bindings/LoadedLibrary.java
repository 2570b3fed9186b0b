package io.nccl4j.bindings;

import java.lang.foreign.SymbolLookup;

/**
 * A shared library that is loaded for the rest of the process's life.
 *
 * @param name file name by which it was asked for
 * @param source the rule that found it
 * @param origin its path; the bare name if the system's loader chose the file
 * @param symbols its functions and variables, usable by any thread
 */
public record LoadedLibrary(String name, Source source, String origin, SymbolLookup symbols)
    implements LibraryResult {
  /** The rules by which a library is found, in the order in which they are tried. */
  public enum Source {
    /** The user named the file or its directory. */
    SETTING,
    /** A directory of the variable {@code LD_LIBRARY_PATH}. */
    LD_LIBRARY_PATH,
    /** The system's loader found it. */
    SYSTEM,
    /** A place where package managers such as pip and conda put it. */
    WELL_KNOWN
  }

  @Override
  public LoadedLibrary orElseThrow() {
    return this;
  }
}

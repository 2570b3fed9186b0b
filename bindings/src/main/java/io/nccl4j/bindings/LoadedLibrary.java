package io.nccl4j.bindings;

import java.lang.foreign.SymbolLookup;
import java.util.List;

/**
 * A shared library that is loaded for the rest of the process's life. The lookup of this package's
 * class loader ({@link SymbolLookup#loaderLookup}) finds its functions, too: that is where the
 * generated bindings look.
 *
 * @param name file name by which it was asked for
 * @param source the rule that found it
 * @param path its absolute path
 * @param symbols its functions and variables, usable by any thread
 * @param passedOver places that were tried before and did not serve
 */
public record LoadedLibrary(
    String name,
    Source source,
    String path,
    SymbolLookup symbols,
    List<LibraryNotFound.Attempt> passedOver)
    implements LibraryResult {
  /** The rules by which a library is found, in the order in which they are tried. */
  public enum Source {
    /** The user named the file or its directory. */
    SETTING,
    /** A directory of the variable {@code LD_LIBRARY_PATH}. */
    LD_LIBRARY_PATH,
    /** The system's loader found it. */
    SYSTEM,
    /** A place where distributions, containers, pip or conda put it. */
    WELL_KNOWN
  }

  /** Copies the list. */
  public LoadedLibrary {
    passedOver = List.copyOf(passedOver);
  }

  @Override
  public LoadedLibrary orElseThrow() {
    return this;
  }
}

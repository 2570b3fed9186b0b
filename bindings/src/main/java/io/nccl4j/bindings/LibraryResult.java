package io.nccl4j.bindings;

/** Outcome of {@link NativeLibraries#find}: a library, or the reasons why there is none. */
public sealed interface LibraryResult permits LoadedLibrary, LibraryNotFound {
  /**
   * The library.
   *
   * @return the loaded library
   * @throws LibraryNotFoundException if there is none, with every place that was tried
   */
  LoadedLibrary orElseThrow();
}

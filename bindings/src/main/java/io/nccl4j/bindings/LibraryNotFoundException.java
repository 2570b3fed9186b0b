package io.nccl4j.bindings;

/** A library that is needed could not be loaded; the message lists every place tried. */
public final class LibraryNotFoundException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  /** What was tried; null after deserialization. */
  private final transient LibraryNotFound notFound;

  LibraryNotFoundException(LibraryNotFound notFound) {
    super(notFound.message());
    this.notFound = notFound;
  }

  /**
   * The library and every place tried.
   *
   * @return what {@link NativeLibraries#find} returned
   */
  public LibraryNotFound notFound() {
    return notFound;
  }
}

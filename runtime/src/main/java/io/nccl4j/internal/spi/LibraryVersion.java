package io.nccl4j.internal.spi;

/** The version of this library, as its jar says it. */
public final class LibraryVersion {
  /** That of classes in a folder, which belong to no version. */
  public static final String DEVELOPMENT = "development";

  private static final String TEXT = read();

  private LibraryVersion() {}

  /** The version, the same on the class path and on the module path, or {@link #DEVELOPMENT}. */
  public static String text() {
    return TEXT;
  }

  /** Only an unnamed module has what the manifest says of packages. */
  private static String read() {
    Module module = LibraryVersion.class.getModule();
    if (module.isNamed()) {
      return module.getDescriptor().rawVersion().orElse(DEVELOPMENT);
    }
    String version = LibraryVersion.class.getPackage().getImplementationVersion();
    return version == null ? DEVELOPMENT : version;
  }
}

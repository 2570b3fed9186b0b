package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.bindings.nccl.Nccl;
import java.io.File;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;

/**
 * The two libraries of the generated bindings. Load one before the first call of its class, {@link
 * Nccl} or {@link Cuda}, and ask {@link #has} before the first call of a function that an older
 * library lacks: a call that finds no function breaks its class for good.
 *
 * <p>Neither library initialises CUDA when it is loaded.
 */
public enum GpuLibrary {
  /** NCCL, {@code libnccl.so.2}. */
  NCCL("libnccl.so.2", "nccl4j.nccl.library", "NCCL4J_NCCL_LIBRARY", "ncclGetVersion"),
  /** The CUDA driver's user space part, {@code libcuda.so.1}. */
  CUDA("libcuda.so.1", "nccl4j.cuda.library", "NCCL4J_CUDA_LIBRARY", "cuDriverGetVersion");

  /** Where distributions and containers put both, should the system's loader not know. */
  private static final List<String> STANDARD =
      List.of(
          "/usr/local/nvidia/lib64/",
          "/usr/local/nvidia/lib/",
          "/usr/lib/{x86_64,aarch64}-linux-gnu/",
          "/usr/lib64/",
          "/usr/lib/",
          "/usr/local/lib/",
          "/usr/local/cuda/lib64/",
          "/usr/lib/wsl/lib/");

  private final String file;
  private final String property;
  private final String variable;
  private final String versionFunction;
  private LibraryResult result;

  GpuLibrary(String file, String property, String variable, String versionFunction) {
    this.file = file;
    this.property = property;
    this.variable = variable;
    this.versionFunction = versionFunction;
  }

  /**
   * The system property that names the library's file or directory.
   *
   * @return its name; it goes before the environment variable
   */
  public String property() {
    return property;
  }

  /**
   * The environment variable that names the library's file or directory.
   *
   * @return its name
   */
  public String variable() {
    return variable;
  }

  /**
   * Finds and loads the library at the first call; later calls return the same.
   *
   * @return the library, or every place tried with the reason why it did not serve; never throws
   *     because of a missing library or denied native access
   */
  public synchronized LibraryResult load() {
    if (result == null) {
      result = find();
    }
    return result;
  }

  /**
   * Whether the library is there and has this function.
   *
   * @param function name in C, such as {@code ncclCommShrink}
   * @return whether it can be called
   */
  public boolean has(String function) {
    return load() instanceof LoadedLibrary library && library.symbols().find(function).isPresent();
  }

  /**
   * The library's own version: of NCCL such as 23007 for 2.30.7, of CUDA the newest that the driver
   * serves, such as 13000 for 13.0.
   *
   * @return the version
   * @throws LibraryNotFoundException if the library could not be loaded
   * @throws IllegalStateException if the library refuses, as the stand-in for libcuda does that
   *     comes with the CUDA toolkit
   */
  public int version() {
    LoadedLibrary library = load().orElseThrow();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment version = arena.allocate(JAVA_INT);
      int error =
          switch (this) {
            case NCCL -> Nccl.ncclGetVersion(version);
            case CUDA -> Cuda.cuDriverGetVersion(version);
          };
      if (error != 0) {
        throw new IllegalStateException(
            versionFunction + " of " + library.path() + " fails with error " + error);
      }
      return version.get(JAVA_INT, 0);
    }
  }

  private LibraryResult find() {
    String setting = System.getProperty(property, "");
    if (setting.isEmpty()) {
      setting = System.getenv().getOrDefault(variable, "");
    }
    Optional<Path> path = Optional.empty();
    try {
      path = setting.isEmpty() ? path : Optional.of(Path.of(setting));
    } catch (InvalidPathException e) {
      LoadedLibrary.Source source = LoadedLibrary.Source.SETTING;
      return new LibraryNotFound(
          file, List.of(new LibraryNotFound.Attempt(source, setting, e.getReason())));
    }
    return NativeLibraries.find(
        new LibraryRequest(List.of(file), versionFunction, path, wellKnown(System.getenv())));
  }

  /** Patterns of the places to try last. */
  List<String> wellKnown(Map<String, String> environment) {
    List<String> places = new ArrayList<>();
    STANDARD.forEach(directory -> places.add(directory + file));
    if (this == NCCL) {
      for (String variableOfPrefix : List.of("VIRTUAL_ENV", "CONDA_PREFIX")) {
        String prefix = environment.getOrDefault(variableOfPrefix, "");
        if (!prefix.isEmpty()) {
          addPython(places, prefix);
        }
      }
      for (String directory : environment.getOrDefault("PATH", "").split(File.pathSeparator)) {
        if (directory.endsWith("/bin") && new File(directory, "python3").canExecute()) {
          addPython(places, directory.substring(0, directory.length() - "/bin".length()));
          break;
        }
      }
      String home = environment.getOrDefault("HOME", "");
      if (!home.isEmpty()) {
        addPython(places, home + "/.local");
      }
    }
    return places.stream().distinct().toList();
  }

  /** What pip installs below a Python's prefix, and conda into it. */
  private void addPython(List<String> places, String prefix) {
    String root = prefix.replaceAll("[*?\\[{\\\\]", "\\\\$0");
    places.add(root + "/lib/" + file);
    for (String packages : List.of("/lib{,64}/python3*", "/local/lib/python3*")) {
      places.add(root + packages + "/{site,dist}-packages/nvidia/nccl/lib/" + file);
    }
  }
}

package io.nccl4j.bindings;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.InvalidPathException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Optional;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Stream;

/**
 * Finds and loads shared libraries: the user's setting, the directories of {@code LD_LIBRARY_PATH},
 * the system's loader, then well-known places.
 *
 * <p>A setting is an order: if it does not serve, the search ends, so that nobody runs with another
 * library than the one named. A library stays loaded until the process ends.
 */
public final class NativeLibraries {
  private static final byte[] ELF_MAGIC = {0x7f, 'E', 'L', 'F'};

  private NativeLibraries() {}

  /**
   * Finds and loads a library with this process's {@code LD_LIBRARY_PATH}.
   *
   * @param request what to find and where
   * @return the library, or every place tried with the reason why it did not serve; never throws
   *     because of a missing library or denied native access
   */
  public static LibraryResult find(LibraryRequest request) {
    String path = System.getenv("LD_LIBRARY_PATH");
    return find(request, path == null ? "" : path);
  }

  /** As {@link #find(LibraryRequest)} with a given value of {@code LD_LIBRARY_PATH}. */
  static LibraryResult find(LibraryRequest request, String libraryPath) {
    return new Search(request).run(libraryPath);
  }

  /** One search: collects the attempts. */
  private static final class Search {
    private final LibraryRequest request;
    private final List<LibraryNotFound.Attempt> attempts = new ArrayList<>();

    Search(LibraryRequest request) {
      this.request = request;
    }

    LibraryResult run(String libraryPath) {
      Optional<LoadedLibrary> found =
          request.setting().isPresent()
              ? inSetting(request.setting().get())
              : inLibraryPath(libraryPath).or(this::inSystem).or(this::inWellKnownPlaces);
      if (found.isPresent()) {
        return found.get();
      }
      return new LibraryNotFound(request.names().getFirst(), attempts);
    }

    private Optional<LoadedLibrary> inSetting(Path setting) {
      if (Files.isDirectory(setting)) {
        return inDirectory(LoadedLibrary.Source.SETTING, setting);
      }
      return fromFile(LoadedLibrary.Source.SETTING, fileName(setting), setting);
    }

    private Optional<LoadedLibrary> inLibraryPath(String libraryPath) {
      // The dynamic linker splits at both characters. It takes an empty part for the working
      // directory, from which nothing should be loaded by accident.
      for (String directory : libraryPath.split("[:;]")) {
        if (!directory.isEmpty()) {
          Optional<LoadedLibrary> found = inLibraryPathDirectory(directory);
          if (found.isPresent()) {
            return found;
          }
        }
      }
      return Optional.empty();
    }

    private Optional<LoadedLibrary> inLibraryPathDirectory(String directory) {
      try {
        return inDirectory(LoadedLibrary.Source.LD_LIBRARY_PATH, Path.of(directory));
      } catch (InvalidPathException e) {
        return failed(LoadedLibrary.Source.LD_LIBRARY_PATH, directory, e.getReason());
      }
    }

    private Optional<LoadedLibrary> inDirectory(LoadedLibrary.Source source, Path directory) {
      for (String name : request.names()) {
        Optional<LoadedLibrary> found = fromFile(source, name, directory.resolve(name));
        if (found.isPresent()) {
          return found;
        }
      }
      return Optional.empty();
    }

    @SuppressWarnings("restricted")
    private Optional<LoadedLibrary> inSystem() {
      for (String name : request.names()) {
        try {
          SymbolLookup symbols = SymbolLookup.libraryLookup(name, Arena.global());
          Optional<LoadedLibrary> found = fromSystem(name, symbols);
          if (found.isPresent()) {
            return found;
          }
        } catch (IllegalCallerException e) {
          return failed(LoadedLibrary.Source.SYSTEM, name, LibcBinder.deniedReason());
        } catch (IllegalArgumentException e) {
          failed(LoadedLibrary.Source.SYSTEM, name, loaderReason(name, e));
        }
      }
      return Optional.empty();
    }

    private Optional<LoadedLibrary> fromSystem(String name, SymbolLookup symbols) {
      Optional<MemorySegment> function = symbols.find(request.function());
      Optional<String> path = function.flatMap(address -> mappedFile(address.address()));
      if (function.isPresent() && path.isEmpty()) {
        return failed(LoadedLibrary.Source.SYSTEM, name, "no file in /proc/self/maps");
      }
      return bound(LoadedLibrary.Source.SYSTEM, name, path.orElse(name), symbols);
    }

    /** Checks the library and gives it to this class loader, where generated code looks. */
    @SuppressWarnings("restricted")
    private Optional<LoadedLibrary> bound(
        LoadedLibrary.Source source, String name, String path, SymbolLookup symbols) {
      if (symbols.find(request.function()).isEmpty()) {
        return failed(source, path, "it has no function " + request.function());
      }
      try {
        System.load(path);
      } catch (UnsatisfiedLinkError e) {
        return failed(source, path, String.valueOf(e.getMessage()));
      }
      return Optional.of(new LoadedLibrary(name, source, path, symbols, attempts));
    }

    private Optional<LoadedLibrary> inWellKnownPlaces() {
      for (String pattern : request.wellKnown()) {
        List<Path> files = expand(pattern);
        if (files.isEmpty()) {
          failed(LoadedLibrary.Source.WELL_KNOWN, pattern, "no such file");
        }
        for (Path file : files) {
          Optional<LoadedLibrary> found =
              fromFile(LoadedLibrary.Source.WELL_KNOWN, fileName(file), file);
          if (found.isPresent()) {
            return found;
          }
        }
      }
      return Optional.empty();
    }

    @SuppressWarnings("restricted")
    private Optional<LoadedLibrary> fromFile(LoadedLibrary.Source source, String name, Path path) {
      Path file = path.toAbsolutePath();
      if (!Files.exists(file)) {
        return failed(source, file.toString(), "no such file");
      }
      if (!startsAsElf(file)) {
        // Often a linker script; the virtual machine would warn about its stack.
        return failed(source, file.toString(), "not a shared library, or not readable");
      }
      try {
        SymbolLookup symbols = SymbolLookup.libraryLookup(file, Arena.global());
        return bound(source, name, file.toString(), symbols);
      } catch (IllegalCallerException e) {
        return failed(source, file.toString(), LibcBinder.deniedReason());
      } catch (IllegalArgumentException e) {
        return failed(source, file.toString(), loaderReason(file.toString(), e));
      }
    }

    private Optional<LoadedLibrary> failed(
        LoadedLibrary.Source source, String place, String reason) {
      attempts.add(new LibraryNotFound.Attempt(source, place, reason));
      return Optional.empty();
    }
  }

  /** Existing files that match, in the order of their names, so that all runs agree. */
  static List<Path> expand(String pattern) {
    List<Path> matches = List.of(Path.of(pattern.startsWith("/") ? "/" : ""));
    for (String part : pattern.split("/")) {
      if (!part.isEmpty()) {
        LinkedHashSet<Path> next = new LinkedHashSet<>();
        for (Path match : matches) {
          next.addAll(children(match, part));
        }
        matches = List.copyOf(next);
      }
    }
    return matches.stream().filter(Files::isRegularFile).toList();
  }

  private static List<Path> children(Path directory, String part) {
    List<Path> found = new ArrayList<>();
    try {
      if (part.chars().noneMatch(c -> "*?[{\\".indexOf(c) >= 0)) {
        Path child = directory.resolve(part);
        return Files.exists(child) ? List.of(child) : List.of();
      }
      try (DirectoryStream<Path> entries = Files.newDirectoryStream(directory, part)) {
        entries.forEach(found::add);
      }
    } catch (IOException
        | DirectoryIteratorException
        | InvalidPathException
        | PatternSyntaxException e) {
      // Not a directory, not readable, or no name or pattern: nothing matches, and the search says
      // so.
      return List.of();
    }
    found.sort(null);
    return found;
  }

  /** The file of which this address of code is a part. */
  private static Optional<String> mappedFile(long address) {
    try (Stream<String> maps = Files.lines(Path.of("/proc/self/maps"))) {
      return maps.filter(line -> line.contains(" /") && covers(line, address))
          .map(line -> line.substring(line.indexOf(" /") + 1))
          .findFirst();
    } catch (IOException | UncheckedIOException e) {
      return Optional.empty();
    }
  }

  /** Whether a line such as {@code 7f00-7fff r-xp ...} speaks of this address. */
  private static boolean covers(String line, long address) {
    int dash = line.indexOf('-');
    int blank = line.indexOf(' ');
    return address >= Long.parseUnsignedLong(line, 0, dash, 16)
        && address < Long.parseUnsignedLong(line, dash + 1, blank, 16);
  }

  private static boolean startsAsElf(Path file) {
    try (InputStream input = Files.newInputStream(file)) {
      return Arrays.equals(ELF_MAGIC, input.readNBytes(ELF_MAGIC.length));
    } catch (IOException e) {
      return false;
    }
  }

  private static String fileName(Path path) {
    Path name = path.getFileName();
    return name == null ? path.toString() : name.toString();
  }

  private static String loaderReason(String file, IllegalArgumentException e) {
    String text = Libc.loadError(file);
    return text.isEmpty() ? String.valueOf(e.getMessage()) : text;
  }
}

package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.RandomAccessFile;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Order of the places, and what is said when none serves. */
class NativeLibrariesTest {
  private static final String MATH = "libm.so.6";
  private static final String BOGUS = "libnccl4j-no-such-library.so.7";

  @TempDir Path directory;

  @BeforeEach
  void requireLibc() {
    LibcConditions.requireLibc();
  }

  private static LibraryRequest request(Path setting, List<String> wellKnown, String... names) {
    return new LibraryRequest(List.of(names), "cos", Optional.ofNullable(setting), wellKnown);
  }

  /** The path of a library that this process has loaded. */
  private static Path mathLibrary() throws IOException {
    NativeLibraries.find(request(null, List.of(), MATH)).orElseThrow();
    return Files.readAllLines(Path.of("/proc/self/maps")).stream()
        .filter(line -> line.endsWith("/" + MATH))
        .map(line -> Path.of(line.substring(line.indexOf('/'))))
        .findFirst()
        .orElseThrow();
  }

  private Path copyOfMath(String name) throws IOException {
    Path copy = directory.resolve(name);
    Files.createDirectories(copy.getParent());
    return Files.copy(mathLibrary(), copy);
  }

  @Test
  void theSystemLoaderFindsItsLibraries() throws Exception {
    LoadedLibrary library =
        NativeLibraries.find(request(null, List.of(), BOGUS, MATH), "").orElseThrow();
    assertEquals(LoadedLibrary.Source.SYSTEM, library.source());
    assertEquals(MATH, library.name());
    assertEquals(mathLibrary().toString(), library.path());
    assertEquals(
        List.of(BOGUS), library.passedOver().stream().map(LibraryNotFound.Attempt::place).toList());
    assertTrue(library.symbols().find("cos").isPresent());
    assertFalse(library.symbols().find("no_such_function").isPresent());
    // The generated bindings look here.
    assertTrue(SymbolLookup.loaderLookup().find("cos").isPresent());
  }

  @Test
  void aLibraryWithoutTheFunctionIsPassedOver() {
    LibraryNotFound notFound =
        assertInstanceOf(
            LibraryNotFound.class, NativeLibraries.find(request(null, List.of(), "libc.so.6"), ""));
    assertTrue(notFound.message().endsWith("it has no function cos"), notFound.message());
  }

  @Test
  void theSettingIsAFileOrADirectory() throws Exception {
    Path copy = copyOfMath("mine.so");
    LoadedLibrary byFile = NativeLibraries.find(request(copy, List.of(), BOGUS), "").orElseThrow();
    assertEquals(LoadedLibrary.Source.SETTING, byFile.source());
    assertEquals(copy.toString(), byFile.path());
    LoadedLibrary byDirectory =
        NativeLibraries.find(request(directory, List.of(), BOGUS, "mine.so"), "").orElseThrow();
    assertEquals(copy.toString(), byDirectory.path());
    assertTrue(byDirectory.symbols().find("cos").isPresent());
  }

  @Test
  void aSettingThatDoesNotServeEndsTheSearch() {
    Path missing = directory.resolve("missing.so");
    LibraryResult result = NativeLibraries.find(request(missing, List.of(), MATH), "");
    LibraryNotFound notFound = assertInstanceOf(LibraryNotFound.class, result);
    assertEquals(1, notFound.attempts().size());
    assertEquals(LoadedLibrary.Source.SETTING, notFound.attempts().getFirst().source());
    assertTrue(notFound.message().contains(missing + ": no such file"), notFound.message());
  }

  @Test
  void theLibraryPathComesBeforeTheSystem() throws Exception {
    Path copy = copyOfMath("libs/" + MATH);
    String path = directory.resolve("none") + "::" + copy.getParent();
    LoadedLibrary library =
        NativeLibraries.find(request(null, List.of(), MATH), path).orElseThrow();
    assertEquals(LoadedLibrary.Source.LD_LIBRARY_PATH, library.source());
    assertEquals(copy.toString(), library.path());
  }

  @Test
  void wellKnownPlacesArePatterns() throws Exception {
    Path copy = copyOfMath("python3.12/site-packages/nvidia/nccl/lib/" + BOGUS);
    String pattern = directory + "/python3*/{site,dist}-packages/nvidia/nccl/lib/" + BOGUS;
    LoadedLibrary library =
        NativeLibraries.find(request(null, List.of("/none/*/x.so", pattern), BOGUS), "")
            .orElseThrow();
    assertEquals(LoadedLibrary.Source.WELL_KNOWN, library.source());
    assertEquals(copy.toString(), library.path());
    assertEquals(List.of(), NativeLibraries.expand(directory + "/python3*"));
    assertEquals(List.of(), NativeLibraries.expand(directory + "/["));
    assertEquals(List.of(), NativeLibraries.expand(directory + "/\0/x"));
    Path odd = copyOfMath("{odd}[1]/" + BOGUS);
    assertEquals(List.of(odd), NativeLibraries.expand(directory + "/\\{odd}\\[1]/" + BOGUS));
  }

  @Test
  void aFailureListsEveryPlaceWithItsReason() throws Exception {
    Path text = Files.writeString(directory.resolve(BOGUS), "INPUT(libm.so)");
    String pattern = directory + "/none*/" + BOGUS;
    LibraryResult result =
        NativeLibraries.find(request(null, List.of(pattern), BOGUS), directory.toString());
    LibraryNotFound notFound = assertInstanceOf(LibraryNotFound.class, result);
    assertEquals(
        List.of(
            LoadedLibrary.Source.LD_LIBRARY_PATH,
            LoadedLibrary.Source.SYSTEM,
            LoadedLibrary.Source.WELL_KNOWN),
        notFound.attempts().stream().map(LibraryNotFound.Attempt::source).toList());
    String message = notFound.message();
    assertTrue(message.contains(text + ": not a shared library"), message);
    assertTrue(message.contains(pattern + ": no such file"), message);
    LibraryNotFoundException thrown =
        assertThrows(LibraryNotFoundException.class, result::orElseThrow);
    assertEquals(message, thrown.getMessage());
    assertSame(notFound, thrown.notFound());
  }

  @Test
  void theDynamicLinkersOwnWordsAreTheReason() throws Exception {
    Path copy = copyOfMath("other.so");
    try (RandomAccessFile file = new RandomAccessFile(copy.toFile(), "rw")) {
      file.seek(18); // e_machine
      file.write(2); // Sun's SPARC
    }
    LibraryNotFound notFound =
        assertInstanceOf(
            LibraryNotFound.class, NativeLibraries.find(request(copy, List.of(), BOGUS), ""));
    String reason = notFound.attempts().getFirst().reason();
    assertTrue(reason.startsWith(copy + ": "), reason);
    assertFalse(reason.contains("Cannot open library"), reason);
  }

  @Test
  void namesAreFileNames() {
    assertThrows(IllegalArgumentException.class, () -> request(null, List.of()));
    assertThrows(IllegalArgumentException.class, () -> request(null, List.of(), "lib/x.so"));
    assertThrows(IllegalArgumentException.class, () -> request(null, List.of(), ""));
  }
}

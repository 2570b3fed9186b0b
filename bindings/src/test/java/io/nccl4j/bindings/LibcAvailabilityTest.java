package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.FunctionDescriptor;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Absence of the C library is a value with a reason. */
class LibcAvailabilityTest {
  /** Run in a process that was not granted native access. */
  static final class Denied {
    private Denied() {}

    public static void main(String[] arguments) {
      System.out.println(Libc.isAvailable() + " " + Libc.unavailableReason());
      try {
        System.out.println(Processes.getuid());
      } catch (UnsupportedOperationException e) {
        System.out.println(e.getMessage());
      }
      LibraryRequest request =
          new LibraryRequest(List.of("libm.so.6"), "cos", Optional.empty(), List.of());
      System.out.println(NativeLibraries.find(request));
    }
  }

  @Test
  void availableOnSupportedSystems() {
    LibcConditions.requireLibc();
    assertEquals("", Libc.unavailableReason());
  }

  @Test
  void otherOperatingSystemIsAReason() {
    LibcBinder binder = new LibcBinder("Windows 11", "amd64", List.of());
    assertTrue(binder.reason().contains("Windows 11"), binder.reason());
    assertNull(binder.callState());
    assertEquals(0, binder.errnoOffset());
  }

  @Test
  void otherProcessorIsAReason() {
    LibcBinder binder = new LibcBinder("Linux", "s390x", List.of());
    assertTrue(binder.reason().contains("s390x"), binder.reason());
  }

  @Test
  void missingFunctionIsAReason() {
    LibcConditions.requireLibc();
    String arch = System.getProperty("os.arch");
    for (String missing : List.of("no_such_function", "pthread_no_such_function")) {
      LibcBinder binder = new LibcBinder("Linux", arch, List.of("close", missing));
      assertTrue(binder.reason().contains("no function " + missing), binder.reason());
    }
  }

  @Test
  void functionsOutsideTheCheckedListAreRefused() {
    LibcConditions.requireLibc();
    LibcBinder binder = new LibcBinder("Linux", System.getProperty("os.arch"), List.of("getpid"));
    assertNull(binder.reason());
    FunctionDescriptor type = FunctionDescriptor.of(JAVA_INT);
    assertNotNull(binder.plain("getpid", type));
    assertNull(binder.optional("no_such_function", type));
    assertNull(binder.optionalWithErrno("no_such_function", type));
    assertNotNull(binder.optionalWithErrno("setenv", type));
    assertThrows(AssertionError.class, () -> binder.plain("getuid", type));
  }

  @Test
  void deniedNativeAccessNamesTheFlag() throws Exception {
    LibcConditions.requireLibc();
    List<String> deny =
        Runtime.version().feature() >= 24
            ? List.of("--illegal-native-access=deny")
            : List.of("--enable-native-access=java.logging");
    Process child = LibcConditions.startJava(deny, Denied.class);
    String output = new String(child.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, child.waitFor(), output);
    List<String> lines = output.lines().toList();
    assertTrue(lines.get(0).startsWith("false "), output);
    for (String line : lines) {
      assertTrue(line.contains("--enable-native-access=ALL-UNNAMED"), output);
    }
  }
}

package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.JAVA_INT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.List;
import java.util.Optional;

/**
 * Links C functions for {@link Libc} and the classes by subject, and turns every obstacle into a
 * reason.
 *
 * <p>The constructor never throws: it checks the platform, that native access is granted, and that
 * the functions exist. Handles may be asked for only if there is no {@link #reason}.
 */
final class LibcBinder {
  private final List<String> required;
  private final String reason;
  private Linker linker;
  private SymbolLookup symbols;
  private StructLayout callState;

  LibcBinder(String osName, String osArch, List<String> required) {
    this.required = required;
    reason = obstacle(osName, osArch);
  }

  private String obstacle(String osName, String osArch) {
    if (!osName.equals("Linux")) {
      return "the operating system is " + osName + ", and these calls exist on Linux only";
    }
    if (!osArch.equals("amd64") && !osArch.equals("aarch64")) {
      return "the processor is " + osArch + ", and the layouts are known for amd64 and aarch64";
    }
    try {
      linker = Linker.nativeLinker();
      symbols = linker.defaultLookup();
      callState = Linker.Option.captureStateLayout();
      for (String name : required) {
        if (find(name).isEmpty()) {
          return "the C library has no function " + name + " (glibc 2.28 or later has it)";
        }
      }
      // Linking is what needs native access: try it once.
      link("getuid", FunctionDescriptor.of(JAVA_INT));
      return null;
    } catch (IllegalCallerException e) {
      return deniedReason();
    } catch (RuntimeException | LinkageError e) {
      return "this Java runtime cannot link native functions: " + e;
    }
  }

  /** Why the C library cannot be used, or null. */
  String reason() {
    return reason;
  }

  /** Layout of the segment that receives errno; null if there is a reason. */
  StructLayout callState() {
    return reason == null ? callState : null;
  }

  /** Offset of errno in {@link #callState}. */
  long errnoOffset() {
    return reason == null ? callState.byteOffset(PathElement.groupElement("errno")) : 0;
  }

  /** A function that sets errno; its handle takes the call state segment first. */
  MethodHandle withErrno(String name, FunctionDescriptor type) {
    return required(name, type, Linker.Option.captureCallState("errno"));
  }

  /** A function with a variable argument list that sets errno. */
  MethodHandle variadicWithErrno(String name, int fixedArguments, FunctionDescriptor type) {
    return required(
        name,
        type,
        Linker.Option.captureCallState("errno"),
        Linker.Option.firstVariadicArg(fixedArguments));
  }

  /** A function that returns its error, or has none. */
  MethodHandle plain(String name, FunctionDescriptor type) {
    return required(name, type);
  }

  /** A function that older C libraries lack; null if it is absent. */
  MethodHandle optional(String name, FunctionDescriptor type) {
    return find(name).isPresent() ? link(name, type) : null;
  }

  /** A function that sets errno and that only some need; null if it is absent. */
  MethodHandle optionalWithErrno(String name, FunctionDescriptor type) {
    return find(name).isPresent()
        ? link(name, type, Linker.Option.captureCallState("errno"))
        : null;
  }

  private MethodHandle required(String name, FunctionDescriptor type, Linker.Option... options) {
    if (!required.contains(name)) {
      throw new AssertionError(name + " is missing in the list of required functions");
    }
    return link(name, type, options);
  }

  @SuppressWarnings("restricted")
  private MethodHandle link(String name, FunctionDescriptor type, Linker.Option... options) {
    return linker.downcallHandle(find(name).orElseThrow(), type, options);
  }

  private Optional<MemorySegment> find(String name) {
    Optional<MemorySegment> symbol = symbols.find(name);
    if (symbol.isEmpty() && name.startsWith("pthread_")) {
      // Up to glibc 2.33 these live in a library of their own.
      return findInPthreadLibrary(name);
    }
    return symbol;
  }

  @SuppressWarnings("restricted")
  private static Optional<MemorySegment> findInPthreadLibrary(String name) {
    try {
      return SymbolLookup.libraryLookup("libpthread.so.0", Arena.global()).find(name);
    } catch (IllegalArgumentException e) {
      return Optional.empty(); // no such library
    }
  }

  /** The sentence for a process in which native access was not granted to this module. */
  static String deniedReason() {
    return "native access is denied; start Java with " + grantOption();
  }

  /**
   * The option that grants native access to this module, or to the class path where it is there.
   */
  static String grantOption() {
    Module module = LibcBinder.class.getModule();
    return "--enable-native-access=" + (module.isNamed() ? module.getName() : "ALL-UNNAMED");
  }
}

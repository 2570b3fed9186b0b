package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.channels.FileChannel;
import java.nio.channels.FileLock;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/**
 * Libraries with the C ABI of libcuda and libnccl, for machines without a GPU: compiled from {@code
 * src/test/c} once per build. Streams are asynchronous, operations move and reduce real data
 * between threads and processes; faults can be injected, calls counted, live objects asked for.
 *
 * <p>The control works on the libraries of this process. A child process is controlled by its
 * environment: {@code STANDIN_FAULT}, for example {@code
 * ncclAllReduce@1:3:error:5;cuMemCreate:1:delay:100}; {@code STANDIN_CUDA_DRIVER}, {@code
 * STANDIN_CUDA_DEVICES}, {@code STANDIN_CUDA_MEMORY}.
 */
@SuppressWarnings("restricted")
public final class StandIn {
  /** The newest release that the stand-in has the functions of. */
  public static final int NCCL_2_30 = 23007;

  /** The oldest release that the backend takes. */
  public static final int NCCL_2_19 = 21903;

  /** Too old a release. */
  public static final int NCCL_2_18 = 21805;

  /** What an injected fault does. */
  public enum Fault {
    /** The call returns the value. */
    ERROR,
    /** The call, or the operation on the stream, takes so many milliseconds longer. */
    DELAY,
    /**
     * An operation or initialisation waits until its communicator is aborted; other calls wait
     * until {@link #reset}.
     */
    HANG,
    /** The communicator's asynchronous error becomes the value, and the operation hangs. */
    ASYNC,
    /** The context gets the value as its sticky CUDA error. */
    STICKY
  }

  private static final String C_COMPILER = "gcc";

  private final int version;
  private final Path cuda;
  private final Path nccl;

  private StandIn(int version, Path cuda, Path nccl) {
    this.version = version;
    this.cuda = cuda;
    this.nccl = nccl;
  }

  /** Compiled for the newest release; skips the test where there is no compiler. */
  public static StandIn require() {
    return require(NCCL_2_30);
  }

  /**
   * Compiled for a release of NCCL, whose functions only it has; skips the test where there is no
   * compiler.
   *
   * @param ncclVersion as ncclGetVersion gives it, for example {@link #NCCL_2_19}
   */
  public static StandIn require(int ncclVersion) {
    String reason = missing();
    if (!reason.isEmpty()) {
      System.out.println("stand-ins for libcuda and libnccl are not compiled: " + reason);
    }
    assumeTrue(reason.isEmpty(), reason);
    return Compiler.compile(ncclVersion);
  }

  /** Why there can be no stand-in here, or nothing. */
  public static String missing() {
    if (!System.getProperty("os.name").equals("Linux")) {
      return "they need Linux";
    }
    try {
      int status = Compiler.run(Path.of("."), List.of(C_COMPILER, "--version")).status();
      return status == 0 ? "" : C_COMPILER + " does not run";
    } catch (UncheckedIOException e) {
      return "no C compiler named " + C_COMPILER;
    }
  }

  /** The file libcuda.so.1. */
  public Path cuda() {
    return cuda;
  }

  /** The file libnccl.so.2; it finds its libcuda.so.1 by itself. */
  public Path nccl() {
    return nccl;
  }

  /** A value for LD_LIBRARY_PATH with which both are found. */
  public String libraryPath() {
    return cuda.getParent() + ":" + nccl.getParent();
  }

  /**
   * Variables for a child process that has these libraries and so many devices. Ranks sleep where
   * they wait: each device is a thread, which ranks that spin would keep from running.
   */
  public Map<String, String> childEnvironment(int devices) {
    return Map.of(
        "NCCL4J_CUDA_LIBRARY", cuda.toString(),
        "NCCL4J_NCCL_LIBRARY", nccl.toString(),
        "STANDIN_CUDA_DEVICES", Integer.toString(devices),
        "NCCL4J_WAIT", "sleep");
  }

  /** A program that tests the libraries, compiled at the first call. */
  public Path selfTest() {
    return Compiler.compileSelfTest(this);
  }

  /**
   * Compiles our declarations against the real headers.
   *
   * @param headers the directories of cuda.h and nccl.h
   * @return how many functions both declare, and the compiler's complaints
   */
  public static Comparison compare(List<Path> headers) {
    return Compiler.compare(headers);
  }

  /** How our declarations compare with the real ones. */
  public record Comparison(int functions, String complaints) {}

  /** The functions of libcuda.so.1, which stays loaded. */
  public SymbolLookup cudaSymbols() {
    return SymbolLookup.libraryLookup(cuda, Arena.global());
  }

  /** The functions of libnccl.so.2, which stays loaded. */
  public SymbolLookup ncclSymbols() {
    return SymbolLookup.libraryLookup(nccl, Arena.global());
  }

  /**
   * Makes a call of a function fail.
   *
   * @param function its name; {@code name@2}: only calls for rank 2 (NCCL) or device 2 (CUDA) count
   * @param nthCall which of the calls from now on, from 1; 0: all
   * @param fault what happens
   * @param value the error's code, or milliseconds
   */
  public void inject(String function, int nthCall, Fault fault, long value) {
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle handle =
          control(
              "standin_fault",
              FunctionDescriptor.of(
                  ValueLayout.JAVA_INT,
                  ValueLayout.ADDRESS,
                  ValueLayout.JAVA_INT,
                  ValueLayout.JAVA_INT,
                  ValueLayout.JAVA_LONG));
      int kind = fault.ordinal() + 1;
      int result = (int) handle.invokeExact(arena.allocateFrom(function), nthCall, kind, value);
      if (result != 0) {
        throw new IllegalStateException("too many faults, or no such: " + function);
      }
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /** Forgets faults and counts of calls, and ends what hangs outside of communicators. */
  public void reset() {
    try {
      control("standin_reset", FunctionDescriptor.ofVoid()).invokeExact();
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /** How often a function was called since the start or the last reset, by whomever. */
  public long calls(String function) {
    return count("standin_calls", function);
  }

  /**
   * How much of something is alive.
   *
   * @param what memory (bytes of all devices), handle, mapping, reservation, pinned (bytes),
   *     stream, event, graph, exec, module, context, comm, window, registration or binding
   */
  public long live(String what) {
    long count = count("standin_live", what);
    if (count < 0) {
      throw new IllegalArgumentException(what + ": " + count);
    }
    return count;
  }

  /** All that is alive, by kind, without what is 0. */
  public Map<String, Long> live() {
    Map<String, Long> all = new TreeMap<>();
    for (String what :
        List.of(
            "memory",
            "handle",
            "mapping",
            "reservation",
            "pinned",
            "stream",
            "event",
            "graph",
            "exec",
            "module",
            "context",
            "comm",
            "window",
            "registration",
            "binding")) {
      if (live(what) != 0) {
        all.put(what, live(what));
      }
    }
    return all;
  }

  /** Gives the context of a device a sticky error, as an illegal access of a kernel would. */
  public void breakDevice(int device, int error) {
    try {
      control(
              "standin_break",
              FunctionDescriptor.ofVoid(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT))
          .invokeExact(device, error);
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /**
   * Sets a variable of this process' environment for C, which the libraries read at each use:
   * {@code STANDIN_CUDA_DEVICES}, {@code NCCL_MULTI_RANK_GPU_ENABLE} and so on. Java does not see
   * it.
   *
   * @param value empty: as if not set
   */
  public static void environment(String name, String value) {
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle handle =
          Linker.nativeLinker()
              .downcallHandle(
                  Linker.nativeLinker().defaultLookup().find("setenv").orElseThrow(),
                  FunctionDescriptor.of(
                      ValueLayout.JAVA_INT,
                      ValueLayout.ADDRESS,
                      ValueLayout.ADDRESS,
                      ValueLayout.JAVA_INT));
      int result = (int) handle.invokeExact(arena.allocateFrom(name), arena.allocateFrom(value), 1);
      if (result != 0) {
        throw new IllegalArgumentException(name);
      }
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  private long count(String function, String name) {
    try (Arena arena = Arena.ofConfined()) {
      MethodHandle handle =
          control(function, FunctionDescriptor.of(ValueLayout.JAVA_LONG, ValueLayout.ADDRESS));
      return (long) handle.invokeExact(arena.allocateFrom(name));
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  private MethodHandle control(String name, FunctionDescriptor descriptor) {
    MemorySegment function = cudaSymbols().find(name).orElseThrow();
    return Linker.nativeLinker().downcallHandle(function, descriptor);
  }

  private static RuntimeException failed(Throwable cause) {
    if (cause instanceof RuntimeException e) {
      throw e;
    }
    if (cause instanceof Error e) {
      throw e;
    }
    return new IllegalStateException(cause);
  }

  /** Compiles the sources into a directory named by their hash, one process at a time. */
  private static final class Compiler {
    private static final List<String> OPTIONS =
        List.of("-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread");
    private static final List<String> SHARED =
        List.of("-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-z,defs");

    /** Sources of the project's own kernels, of which the stand-in has twins. */
    private static final String KERNELS = "bench/src/main/kernels";

    private record Result(int status, String output) {}

    private Compiler() {}

    static synchronized StandIn compile(int version) {
      Path sources = sources();
      Path module = sources.getParent().getParent().getParent();
      try {
        Path all = Files.createDirectories(module.resolve("target/standin"));
        List<Path> inputs = new ArrayList<>(list(sources, "", ""));
        Path root = module.getParent();
        inputs.addAll(list(root.resolve(KERNELS), "", ".cu"));
        Path directory = Files.createDirectories(all.resolve(hash(inputs)));
        Path own = Files.createDirectories(directory.resolve("nccl-" + version));
        StandIn standIn =
            new StandIn(version, directory.resolve("libcuda.so.1"), own.resolve("libnccl.so.2"));
        List<String> options =
            List.of("-DSTANDIN_NCCL_VERSION=" + version, "-Wl,-rpath,$ORIGIN/..", "-I" + root);
        once(standIn.cuda, list(sources, "standin_", ".c"), List.of(), List.of("-I" + root));
        once(standIn.nccl, list(sources, "nccl_", ".c"), List.of(standIn.cuda), options);
        return standIn;
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    static synchronized Path compileSelfTest(StandIn standIn) {
      try {
        Path selfTest = standIn.nccl.resolveSibling("selftest");
        List<String> options =
            List.of("-DSTANDIN_NCCL_VERSION=" + standIn.version, "-Wl,-rpath,$ORIGIN:$ORIGIN/..");
        List<Path> libraries = List.of(standIn.nccl, standIn.cuda);
        once(selfTest, list(sources(), "selftest", ".c"), libraries, options);
        return selfTest;
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    /** Links a file that is not there yet; other processes that want it wait. */
    private static void once(
        Path file, List<Path> sources, List<Path> libraries, List<String> options)
        throws IOException {
      Path lockFile = sources().getParent().getParent().getParent().resolve("target/standin/lock");
      try (FileChannel channel =
              FileChannel.open(lockFile, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
          FileLock lock = channel.lock()) {
        assert lock.isValid();
        if (!Files.exists(file)) {
          List<Path> parts = new ArrayList<>(sources);
          parts.addAll(libraries);
          link(file, parts, options);
        }
      }
    }

    /**
     * A second declaration of a function is warned of when it is the same, and refused when not.
     */
    static Comparison compare(List<Path> headers) {
      List<String> command = new ArrayList<>(List.of(C_COMPILER, "-std=gnu11", "-fsyntax-only"));
      command.addAll(List.of("-Wredundant-decls", "-Wno-deprecated-declarations"));
      try {
        if (!headers.isEmpty()) {
          // nccl.h asks for headers of the CUDA runtime, of which it needs but the type of a
          // stream.
          Path shims = Files.createTempDirectory("standin");
          Files.writeString(
              shims.resolve("cuda_runtime.h"), "typedef struct CUstream_st *cudaStream_t;\n");
          Files.writeString(shims.resolve("cuda_fp16.h"), "\n");
          Files.writeString(shims.resolve("cuda_bf16.h"), "\n");
          command.add("-DSTANDIN_REAL_HEADERS");
          command.add("-I" + shims);
        }
        headers.forEach(directory -> command.add("-I" + directory));
        command.add(sources().resolve("abi_check.c").toString());
        Result result = run(Path.of("").toAbsolutePath(), command);
        int same = result.output().split("redundant redeclaration", -1).length - 1;
        return new Comparison(same, result.status() == 0 ? "" : result.output());
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }

    private static void link(Path to, List<Path> parts, List<String> options) throws IOException {
      Path temporary = to.resolveSibling(to.getFileName() + ".new");
      List<String> command = new ArrayList<>();
      command.add(C_COMPILER);
      command.addAll(OPTIONS);
      if (to.getFileName().toString().startsWith("lib")) {
        command.addAll(SHARED);
        command.add("-Wl,-soname," + to.getFileName());
      }
      command.addAll(List.of("-o", temporary.toString()));
      parts.forEach(part -> command.add(part.toString()));
      command.addAll(options);
      command.add("-lm");
      Result result = run(to.getParent(), command);
      if (result.status() != 0) {
        throw new IllegalStateException(String.join(" ", command) + "\n" + result.output());
      }
      Files.move(temporary, to, StandardCopyOption.ATOMIC_MOVE);
    }

    /** The module's sources, from the working directory of whichever module. */
    private static Path sources() {
      for (Path at = Path.of("").toAbsolutePath(); at != null; at = at.getParent()) {
        for (String place : List.of("src/test/c", "runtime/src/test/c")) {
          if (Files.exists(at.resolve(place).resolve("standin.h"))) {
            return at.resolve(place);
          }
        }
      }
      throw new IllegalStateException("runtime/src/test/c is not above the working directory");
    }

    private static List<Path> list(Path directory, String prefix, String suffix)
        throws IOException {
      try (Stream<Path> files = Files.list(directory)) {
        return files
            .filter(file -> file.getFileName().toString().startsWith(prefix))
            .filter(file -> file.getFileName().toString().endsWith(suffix))
            .sorted()
            .toList();
      }
    }

    private static String hash(List<Path> files) throws IOException {
      try {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        for (Path file : files) {
          digest.update(file.getFileName().toString().getBytes(StandardCharsets.UTF_8));
          digest.update(Files.readAllBytes(file));
        }
        digest.update((OPTIONS.toString() + SHARED).getBytes(StandardCharsets.UTF_8));
        return HexFormat.of().formatHex(digest.digest(), 0, 6);
      } catch (NoSuchAlgorithmException e) {
        throw new IllegalStateException(e);
      }
    }

    static Result run(Path directory, List<String> command) {
      try {
        Process process =
            new ProcessBuilder(command)
                .directory(directory.toFile())
                .redirectErrorStream(true)
                .start();
        String output = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        if (!process.waitFor(120, TimeUnit.SECONDS)) {
          process.destroyForcibly();
          throw new IllegalStateException(command + " does not end");
        }
        return new Result(process.exitValue(), output);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new IllegalStateException(e);
      }
    }
  }
}

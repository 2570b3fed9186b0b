package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.util.Objects;

/**
 * The library by which a process talks to the launcher that started it: libpmix, version 2 or newer
 * ({@code pmix.h}). Its key-value space is all that is used of it.
 *
 * <p>Calls block. One thread at a time.
 */
public final class Pmix {
  /** Names the library's file, where the loader does not find it. */
  public static final String VARIABLE = "NCCL4J_PMIX_LIBRARY";

  private static final String FILE = "libpmix.so.2";

  // pmix_proc_t: the namespace, and the rank in it.
  private static final int NAMESPACE_BYTES = 256;
  private static final int PROCESS_BYTES = NAMESPACE_BYTES + Integer.BYTES;

  // pmix_value_t: the type, and a union of up to 24 bytes; the library may have a larger one.
  private static final int VALUE_BYTES = 64;
  private static final int DATA = 8;
  private static final short STRING = 3;

  private static final byte GLOBAL = 3;
  private static final int KEY_BYTES = 512;
  private static final int MOST_VALUE_BYTES = 1 << 16;

  private final MemorySegment process;

  private Pmix(MemorySegment process) {
    this.process = process;
  }

  /** Loaded by the first call: without the library it cannot be. */
  @SuppressWarnings("restricted") // to call a library, which is what this class is for
  private static final class Calls {
    private static final SymbolLookup LIBRARY =
        SymbolLookup.libraryLookup(
            System.getenv(VARIABLE) == null ? FILE : System.getenv(VARIABLE), Arena.global());

    static final MethodHandle INIT = handle("PMIx_Init", ADDRESS, ADDRESS, JAVA_LONG);
    static final MethodHandle PUT = handle("PMIx_Put", JAVA_BYTE, ADDRESS, ADDRESS);
    static final MethodHandle COMMIT = handle("PMIx_Commit");
    static final MethodHandle FENCE = handle("PMIx_Fence", ADDRESS, JAVA_LONG, ADDRESS, JAVA_LONG);
    static final MethodHandle GET =
        handle("PMIx_Get", ADDRESS, ADDRESS, ADDRESS, JAVA_LONG, ADDRESS);
    static final MethodHandle FINALIZE = handle("PMIx_Finalize", ADDRESS, JAVA_LONG);

    private static MethodHandle handle(String name, MemoryLayout... arguments) {
      return Linker.nativeLinker()
          .downcallHandle(
              LIBRARY.find(name).orElseThrow(() -> new IllegalArgumentException("no " + name)),
              FunctionDescriptor.of(JAVA_INT, arguments));
    }
  }

  /**
   * Greets the launcher.
   *
   * @throws UnsupportedOperationException if the library is not there, or lacks a function
   * @throws IllegalStateException if the launcher does not answer
   */
  public static Pmix init() {
    MemorySegment process = Arena.ofAuto().allocate(PROCESS_BYTES, Integer.BYTES);
    try {
      check("PMIx_Init", (int) Calls.INIT.invokeExact(process, MemorySegment.NULL, 0L));
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      throw new UnsupportedOperationException(reason(e), e);
    } catch (Throwable e) {
      throw failed(e);
    }
    return new Pmix(process);
  }

  /** Why the library cannot be used, in one line; empty if it can be loaded. */
  public static String unavailableReason() {
    try {
      Objects.requireNonNull(Calls.INIT);
      return "";
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      return reason(e);
    }
  }

  private static String reason(LinkageError e) {
    return "libpmix cannot be loaded: " + (e.getCause() == null ? e : e.getCause().getMessage());
  }

  /** Shows a text to all processes of the job, when they have all come to {@link #fence}. */
  public void put(String key, String text) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(VALUE_BYTES, Long.BYTES);
      value.set(JAVA_SHORT, 0, STRING);
      value.set(ADDRESS, DATA, arena.allocateFrom(text));
      check("PMIx_Put", (int) Calls.PUT.invokeExact(GLOBAL, key(arena, key), value));
      check("PMIx_Commit", (int) Calls.COMMIT.invokeExact());
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /** Waits for all processes of the job. */
  public void fence() {
    try {
      check(
          "PMIx_Fence",
          (int) Calls.FENCE.invokeExact(MemorySegment.NULL, 0L, MemorySegment.NULL, 0L));
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /** What a process has {@link #put}. */
  public String get(int rank, String key) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment of = arena.allocate(PROCESS_BYTES, Integer.BYTES);
      of.copyFrom(process);
      of.set(JAVA_INT, NAMESPACE_BYTES, rank);
      MemorySegment found = arena.allocate(ADDRESS);
      check(
          "PMIx_Get",
          (int) Calls.GET.invokeExact(of, key(arena, key), MemorySegment.NULL, 0L, found));
      MemorySegment value = MemoryAccess.ofAddress(found.get(ADDRESS, 0).address(), VALUE_BYTES);
      if (value.get(JAVA_SHORT, 0) != STRING) {
        throw new IllegalStateException("PMIx_Get of " + key + " gave no text");
      }
      long text = value.get(ADDRESS, DATA).address();
      return MemoryAccess.ofAddress(text, MOST_VALUE_BYTES).getString(0);
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  /** Takes leave of the launcher, which ends all processes if one goes without it. */
  public void end() {
    try {
      check("PMIx_Finalize", (int) Calls.FINALIZE.invokeExact(MemorySegment.NULL, 0L));
    } catch (Throwable e) {
      throw failed(e);
    }
  }

  private static MemorySegment key(Arena arena, String key) {
    MemorySegment bytes = arena.allocate(KEY_BYTES);
    bytes.setString(0, key);
    return bytes;
  }

  private static void check(String call, int status) {
    if (status != 0) {
      throw new IllegalStateException(call + " returned " + status);
    }
  }

  private static RuntimeException failed(Throwable e) {
    return e instanceof RuntimeException known
        ? known
        : new IllegalStateException("a call of libpmix failed: " + e, e);
  }
}

package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * A context of UCX ({@code ucp.h}), version 1.13 or newer: the network devices that its workers
 * use. Of its communication, active messages are used.
 *
 * <p>{@code UCX_} variables of the environment set what this class does not.
 */
public final class Ucp implements AutoCloseable {
  /** Names the file of libucp, where the loader does not find it. */
  public static final String VARIABLE = UcpLibrary.VARIABLE;

  private static final int MAJOR = 1;
  private static final int MINOR = 13;

  /**
   * Older versions fail an assertion if a connection breaks, or its worker is destroyed, while
   * messages that UCX itself connects with wait for it.
   */
  private static final int SOUND_MINOR = 14;

  private static final int MAX_TEXT = 1024;

  /** Room for the structures of newer versions, too: their masks say which fields count. */
  private static final long PARAMS_BYTES = 256;

  // ucp_params_t
  private static final long FEATURES = 8;
  private static final long FIELD_FEATURES = 1;
  private static final long FEATURE_AM = 1 << 6;

  private final long context;
  private boolean isClosed;

  private Ucp(long context) {
    this.context = context;
  }

  /**
   * Opens a context.
   *
   * @throws UnsupportedOperationException if the library is not there, too old, or finds no network
   */
  public static Ucp open() {
    requireLibrary();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment result = arena.allocate(ADDRESS);
      check(
          "ucp_config_read",
          (byte)
              UcpLibrary.CONFIG_READ.invokeExact(MemorySegment.NULL, MemorySegment.NULL, result));
      long config = result.get(JAVA_LONG, 0);
      try {
        if (System.getenv("UCX_TLS") == null) {
          // Ranks that share memory do so without UCX.
          check(
              "ucp_config_modify",
              (byte)
                  UcpLibrary.CONFIG_MODIFY.invokeExact(
                      config, arena.allocateFrom("TLS"), arena.allocateFrom("^sm")));
        }
        MemorySegment params = arena.allocate(PARAMS_BYTES, Long.BYTES);
        params.set(JAVA_LONG, 0, FIELD_FEATURES);
        params.set(JAVA_LONG, FEATURES, FEATURE_AM);
        check("ucp_init", (byte) UcpLibrary.INIT.invokeExact(MAJOR, MINOR, params, config, result));
      } finally {
        UcpLibrary.CONFIG_RELEASE.invokeExact(config);
      }
      return new Ucp(result.get(JAVA_LONG, 0));
    } catch (IllegalStateException e) {
      throw new UnsupportedOperationException(
          "libucp " + version() + " cannot be used: " + e.getMessage(), e);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * The library's version, such as {@code 1.13.1}.
   *
   * @throws UnsupportedOperationException if the library is not there
   */
  public static String version() {
    int[] v = versions();
    return v[0] + "." + v[1] + "." + v[2];
  }

  /**
   * What is known to be wrong with this version of the library; empty if nothing is.
   *
   * @throws UnsupportedOperationException if the library is not there
   */
  public static String defect() {
    int[] v = versions();
    return v[0] == 1 && v[1] < SOUND_MINOR
        ? "UCX " + version() + " can end the whole process when a peer dies while connecting"
        : "";
  }

  private static int[] versions() {
    requireLibrary();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment v = arena.allocate(JAVA_INT, 3);
      UcpLibrary.GET_VERSION.invokeExact(v, v.asSlice(Integer.BYTES), v.asSlice(2 * Integer.BYTES));
      return v.toArray(JAVA_INT);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /** Why the library cannot be used, in one line; empty if it can be loaded. */
  public static String unavailableReason() {
    try {
      requireLibrary();
      return "";
    } catch (UnsupportedOperationException e) {
      return e.getMessage();
    }
  }

  private static void requireLibrary() {
    try {
      Objects.requireNonNull(UcpLibrary.GET_VERSION);
    } catch (ExceptionInInitializerError | NoClassDefFoundError e) {
      Throwable cause = e.getCause() == null ? e : e.getCause();
      throw new UnsupportedOperationException(
          "libucp cannot be loaded: " + cause.getMessage(), cause);
    }
  }

  /**
   * A worker: a way in and out of the network, with endpoints for those it talks to.
   *
   * @throws IllegalStateException if it cannot be made
   */
  public UcpWorker newWorker(UcpWorker.Listener listener) {
    if (isClosed) {
      throw new IllegalStateException("the context is closed");
    }
    return new UcpWorker(context, listener);
  }

  /** Closes the context, after its workers. */
  @Override
  public void close() {
    if (isClosed) {
      return;
    }
    isClosed = true;
    try {
      UcpLibrary.CLEANUP.invokeExact(context);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /** UCX's text for a status. */
  public static String text(byte status) {
    try {
      long text = (long) UcpLibrary.STATUS_STRING.invokeExact(status);
      return text == 0 ? "status " + status : MemoryAccess.ofAddress(text, MAX_TEXT).getString(0);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  static void check(String function, byte status) {
    if (status != 0) {
      throw new IllegalStateException(function + ": " + text(status));
    }
  }
}

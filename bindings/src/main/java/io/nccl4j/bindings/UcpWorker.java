package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;

/**
 * A worker of UCX. Its methods may be called by any thread, but by one at a time.
 *
 * <p>Calls that take time return a <b>request</b>: 0 if it is done at once, a negative status if it
 * has failed, else the address of a request, which {@link #status} follows and {@link #free} gives
 * back. Nothing waits: whatever is under way moves in {@link #progress}.
 */
@SuppressWarnings("restricted") // to be called by a library
public final class UcpWorker implements AutoCloseable {
  /** Of a request: done. */
  public static final byte OK = 0;

  /** Of a request: under way. */
  public static final byte IN_PROGRESS = 1;

  /** Sends as one message that is there as a whole when the receiver hears of it. */
  public static final int EAGER = 1 << 1;

  /** Lets UCX choose by the size. */
  public static final int ANY_PROTOCOL = 0;

  private static final long ROOM = 256;

  // ucp_worker_params_t
  private static final long THREAD_MODE = 8;
  private static final long FIELD_THREAD_MODE = 1;
  private static final int SERIALIZED = 1;

  // ucp_am_handler_param_t
  private static final long HANDLER_ID = 8;
  private static final long HANDLER_FLAGS = 12;
  private static final long HANDLER_CALLBACK = 16;
  private static final long HANDLER_FIELDS = 7;
  private static final int WHOLE_MESSAGE = 1;
  private static final int MESSAGE_ID = 0;

  // ucp_ep_params_t
  private static final long EP_ADDRESS = 8;
  private static final long EP_ERROR_MODE = 16;
  private static final long EP_ERROR_HANDLER = 24;
  private static final long EP_USER_DATA = 40;
  private static final long EP_FIELDS = 15;
  private static final int ERROR_MODE_PEER = 1;

  // ucp_request_param_t
  private static final long PARAM_FLAGS = 4;
  private static final long PARAM_MEMORY_TYPE = 48;
  private static final int FIELD_FLAGS = 1 << 4;
  private static final int FIELD_MEMORY_TYPE = 1 << 6;
  private static final int HOST_MEMORY = 0;
  private static final int CLOSE_BY_FORCE = 1;

  // ucp_am_recv_param_t
  private static final long RENDEZVOUS = 1 << 17;

  private static final MethodHandle ARRIVED;
  private static final MethodHandle FAILED;

  static {
    try {
      MethodHandles.Lookup lookup = MethodHandles.lookup();
      ARRIVED =
          lookup.findVirtual(
              UcpWorker.class,
              "arrived",
              MethodType.methodType(
                  byte.class,
                  long.class,
                  long.class,
                  long.class,
                  long.class,
                  long.class,
                  long.class));
      FAILED =
          lookup.findVirtual(
              UcpWorker.class,
              "failed",
              MethodType.methodType(void.class, long.class, long.class, byte.class));
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** Hears, during {@link #progress}, of what has come. */
  public interface Listener {
    /**
     * A message has come. Its memory is its own until this returns.
     *
     * @param header address of its header
     * @param data address of its data
     */
    void arrived(long header, long headerBytes, long data, long bytes);

    /**
     * A message is announced, whose data has not come.
     *
     * @param descriptor for {@link #receive}, after {@link #progress} has returned
     * @return whether it is wanted; if not, its sender's request fails
     */
    boolean announced(long header, long headerBytes, long descriptor, long bytes);

    /**
     * An endpoint is of no use any more.
     *
     * @param of what it was opened with
     */
    void failed(long of, byte status);
  }

  private final Arena arena = Arena.ofShared();
  private final MemorySegment memory = MemoryAccess.everything();
  private final Listener listener;
  private final MemorySegment onFailure;
  private final long eager = parameters(EAGER);
  private final long anyProtocol = parameters(ANY_PROTOCOL);
  private final long plain = parameters(0);
  private final long byForce = parameters(CLOSE_BY_FORCE);
  private final long worker;
  private Throwable thrown;
  private boolean isClosed;

  UcpWorker(long context, Listener listener) {
    this.listener = listener;
    Linker linker = Linker.nativeLinker();
    MemorySegment onArrival =
        linker.upcallStub(
            ARRIVED.bindTo(this),
            FunctionDescriptor.of(
                JAVA_BYTE, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG),
            arena);
    onFailure =
        linker.upcallStub(
            FAILED.bindTo(this), FunctionDescriptor.ofVoid(JAVA_LONG, JAVA_LONG, JAVA_BYTE), arena);
    long made = 0;
    boolean isReady = false;
    try (Arena call = Arena.ofConfined()) {
      MemorySegment params = call.allocate(ROOM, Long.BYTES);
      params.set(JAVA_LONG, 0, FIELD_THREAD_MODE);
      params.set(JAVA_INT, THREAD_MODE, SERIALIZED);
      MemorySegment result = call.allocate(ADDRESS);
      Ucp.check(
          "ucp_worker_create",
          (byte) UcpLibrary.WORKER_CREATE.invokeExact(context, params, result));
      made = result.get(JAVA_LONG, 0);
      MemorySegment handler = call.allocate(ROOM, Long.BYTES);
      handler.set(JAVA_LONG, 0, HANDLER_FIELDS);
      handler.set(JAVA_INT, HANDLER_ID, MESSAGE_ID);
      handler.set(JAVA_INT, HANDLER_FLAGS, WHOLE_MESSAGE);
      handler.set(ADDRESS, HANDLER_CALLBACK, onArrival);
      Ucp.check(
          "ucp_worker_set_am_recv_handler",
          (byte) UcpLibrary.SET_HANDLER.invokeExact(made, handler));
      isReady = true;
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    } finally {
      if (!isReady) {
        destroy(made);
      }
    }
    worker = made;
  }

  private void destroy(long which) {
    try {
      if (which != 0) {
        UcpLibrary.WORKER_DESTROY.invokeExact(which);
      }
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    } finally {
      arena.close();
    }
  }

  private long parameters(int flags) {
    MemorySegment params = arena.allocate(ROOM, Long.BYTES);
    params.set(JAVA_INT, 0, FIELD_FLAGS | FIELD_MEMORY_TYPE);
    params.set(JAVA_INT, PARAM_FLAGS, flags);
    params.set(JAVA_INT, PARAM_MEMORY_TYPE, HOST_MEMORY);
    return params.address();
  }

  // ---- what UCX calls; nothing may be thrown through it

  @SuppressWarnings("unused") // by UCX
  private byte arrived(
      long ignored, long header, long headerBytes, long data, long bytes, long param) {
    try {
      if ((memory.get(JAVA_LONG, param) & RENDEZVOUS) != 0) {
        return listener.announced(header, headerBytes, data, bytes) ? IN_PROGRESS : OK;
      }
      listener.arrived(header, headerBytes, data, bytes);
    } catch (Throwable e) {
      remember(e);
    }
    return OK;
  }

  @SuppressWarnings("unused") // by UCX
  private void failed(long of, long endpoint, byte status) {
    try {
      listener.failed(of, status);
    } catch (Throwable e) {
      remember(e);
    }
  }

  private void remember(Throwable e) {
    if (thrown == null) {
      thrown = e;
    } else if (thrown != e) {
      thrown.addSuppressed(e);
    }
  }

  // ---- what calls UCX

  /** What others need to open an endpoint to it. */
  public byte[] address() {
    try (Arena call = Arena.ofConfined()) {
      MemorySegment result = call.allocate(ADDRESS);
      MemorySegment length = call.allocate(JAVA_LONG);
      Ucp.check(
          "ucp_worker_get_address",
          (byte) UcpLibrary.GET_ADDRESS.invokeExact(worker, result, length));
      long address = result.get(JAVA_LONG, 0);
      byte[] bytes =
          MemoryAccess.ofAddress(address, length.get(JAVA_LONG, 0)).toArray(ValueLayout.JAVA_BYTE);
      UcpLibrary.RELEASE_ADDRESS.invokeExact(worker, address);
      return bytes;
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * Opens an endpoint, which connects when something is sent.
   *
   * @param address of the other worker
   * @param of what {@link Listener#failed} calls it
   * @throws IllegalStateException if that is no address, or nothing leads there
   */
  public long open(byte[] address, long of) {
    try (Arena call = Arena.ofConfined()) {
      MemorySegment params = call.allocate(ROOM, Long.BYTES);
      params.set(JAVA_LONG, 0, EP_FIELDS);
      params.set(ADDRESS, EP_ADDRESS, call.allocateFrom(JAVA_BYTE, address));
      params.set(JAVA_INT, EP_ERROR_MODE, ERROR_MODE_PEER);
      params.set(ADDRESS, EP_ERROR_HANDLER, onFailure);
      params.set(JAVA_LONG, EP_USER_DATA, of);
      MemorySegment result = call.allocate(ADDRESS);
      Ucp.check("ucp_ep_create", (byte) UcpLibrary.EP_CREATE.invokeExact(worker, params, result));
      return result.get(JAVA_LONG, 0);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * Closes an endpoint; what is under way on it fails.
   *
   * @return a request
   */
  public long close(long endpoint) {
    try {
      return (long) UcpLibrary.EP_CLOSE.invokeExact(endpoint, byForce);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * Sends a message. Its memory must not change before the request is done.
   *
   * @param protocol {@link #EAGER} or {@link #ANY_PROTOCOL}
   * @return a request
   */
  public long send(
      long endpoint, long header, long headerBytes, long data, long bytes, int protocol) {
    try {
      return (long)
          UcpLibrary.SEND.invokeExact(
              endpoint,
              MESSAGE_ID,
              header,
              headerBytes,
              data,
              bytes,
              protocol == EAGER ? eager : anyProtocol);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * Receives the data of a message that was announced.
   *
   * @param bytes at least as many as it has
   * @return a request
   */
  public long receive(long descriptor, long data, long bytes) {
    try {
      return (long) UcpLibrary.RECEIVE.invokeExact(worker, descriptor, data, bytes, plain);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /** Does not receive the data of a message that was announced. */
  public void refuse(long descriptor) {
    try {
      UcpLibrary.DATA_RELEASE.invokeExact(worker, descriptor);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /**
   * Moves what can be moved.
   *
   * @return 0 if nothing moved
   */
  public int progress() {
    int moved;
    try {
      moved = (int) UcpLibrary.PROGRESS.invokeExact(worker);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
    if (thrown != null) {
      Throwable e = thrown;
      thrown = null;
      throw Libc.unchecked(e);
    }
    return moved;
  }

  /** How far a request is: {@link #OK}, {@link #IN_PROGRESS}, or why it has failed. */
  public static byte status(long request) {
    if (isOver(request)) {
      return (byte) request;
    }
    try {
      return (byte) UcpLibrary.CHECK_STATUS.invokeExact(request);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /** Whether a request was done, or had failed, when it was returned. */
  public static boolean isOver(long request) {
    // ucs_status_ptr_t: 0, a status of -1 to -100, or an address.
    return request <= 0 && request >= Byte.MIN_VALUE;
  }

  /** Gives a request back. One that is under way frees itself when it is done. */
  public static void free(long request) {
    if (isOver(request)) {
      return;
    }
    try {
      UcpLibrary.REQUEST_FREE.invokeExact(request);
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  /** Destroys the worker. Its endpoints are closed before. */
  @Override
  public void close() {
    if (!isClosed) {
      isClosed = true;
      destroy(worker);
    }
  }
}

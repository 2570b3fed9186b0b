package io.nccl4j.bindings;

import static io.nccl4j.bindings.Libc.BINDER;
import static io.nccl4j.bindings.Libc.checked;
import static io.nccl4j.bindings.Libc.failure;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Objects;
import java.util.function.Supplier;

/**
 * UNIX sockets of Linux: names, connections, messages that carry file descriptors, and who is at
 * the other end. To wait for a socket there is {@link Descriptors#poll(int, int, long)}.
 *
 * <p>{@link Libc} says what holds for all calls of the C library: absence, errors, threads, memory.
 */
public final class UnixSockets {
  /** socket(2): a stream of bytes. */
  public static final int SOCK_STREAM = 1;

  /** socket(2): connected, keeps message boundaries. */
  public static final int SOCK_SEQPACKET = 5;

  /** socket(2), accept4(2): do not block. */
  public static final int SOCK_NONBLOCK = 04000;

  /** socket(2), accept4(2): close on exec. */
  public static final int SOCK_CLOEXEC = 02000000;

  /** sendmsg(2), recvmsg(2): fail with EAGAIN rather than block. */
  public static final int MSG_DONTWAIT = 0x40;

  /** recvmsg(2): leave the bytes in the socket. */
  public static final int MSG_PEEK = 0x2;

  /** shutdown(2): no more writing. */
  public static final int SHUT_WR = 1;

  /** Longest name of an abstract socket address in bytes. */
  public static final int MAX_ABSTRACT_NAME_BYTES = 107;

  /** Most descriptors that one message can carry (unix(7), SCM_MAX_FD). */
  public static final int MAX_FDS_PER_MESSAGE = 253;

  private static final int AF_UNIX = 1;
  private static final int SOL_SOCKET = 1;
  private static final int SO_PEERCRED = 17;
  private static final int SCM_RIGHTS = 1;
  private static final int MSG_CTRUNC = 0x8;
  private static final int MSG_TRUNC = 0x20;
  private static final int MSG_NOSIGNAL = 0x4000;
  private static final int MSG_CMSG_CLOEXEC = 0x40000000;
  private static final int[] NO_FDS = {};

  private UnixSockets() {}

  /**
   * A UNIX socket (socket(2), unix(7)).
   *
   * @param type {@link #SOCK_STREAM} or {@link #SOCK_SEQPACKET} with {@link #SOCK_CLOEXEC} and
   *     possibly {@link #SOCK_NONBLOCK}
   * @return a new descriptor
   * @throws LibcException if the call fails
   */
  public static int socket(int type) {
    return (int)
        checked(
            "socket",
            () -> "creating a UNIX socket of type 0x" + Integer.toHexString(type),
            (arena, errno) -> (int) Socket.HANDLE.invokeExact(errno, AF_UNIX, type, 0));
  }

  /**
   * Gives a socket a name in the abstract namespace (bind(2), unix(7)). The name belongs to the
   * network namespace, needs no file and vanishes with the socket. Every user of the machine can
   * connect: check {@link #peerCredentials}.
   *
   * @param socket descriptor
   * @param name 1 to {@link #MAX_ABSTRACT_NAME_BYTES} bytes of any value
   * @throws LibcException if the call fails, EADDRINUSE if the name is taken
   */
  public static void bindAbstract(int socket, byte[] name) {
    byte[] address = abstractAddress(name);
    bind(socket, address, () -> "the abstract name " + printable(name));
  }

  /**
   * Connects to an abstract name (connect(2)). Blocks while the listener's queue is full.
   *
   * @param socket descriptor
   * @param name as given to {@link #bindAbstract}
   * @throws LibcException if the call fails, ECONNREFUSED if nobody listens there
   */
  public static void connectAbstract(int socket, byte[] name) {
    byte[] address = abstractAddress(name);
    connect(socket, address, () -> "the abstract name " + printable(name));
  }

  /**
   * Lets a named socket accept connections (listen(2)).
   *
   * @param socket descriptor
   * @param backlog connections that may wait to be accepted
   * @throws LibcException if the call fails
   */
  public static void listen(int socket, int backlog) {
    checked(
        "listen",
        () -> "listening on fd " + socket,
        (arena, errno) -> (int) Listen.HANDLE.invokeExact(errno, socket, backlog));
  }

  /**
   * Accepts a connection (accept4(2)). Blocks until there is one; {@link Descriptors#poll(int, int,
   * long)} first for a limit.
   *
   * @param socket listening descriptor
   * @param flags {@link #SOCK_CLOEXEC}, {@link #SOCK_NONBLOCK}
   * @return a new descriptor for the connection
   * @throws LibcException if the call fails, EAGAIN if a non-blocking socket has no connection
   */
  public static int accept4(int socket, int flags) {
    return (int)
        checked(
            "accept4",
            () -> "accepting a connection on fd " + socket,
            (arena, errno) ->
                (int)
                    Accept4.HANDLE.invokeExact(
                        errno, socket, MemorySegment.NULL, MemorySegment.NULL, flags));
  }

  /**
   * Sends bytes and descriptors in one message (sendmsg(2) with SCM_RIGHTS). Blocks while the
   * socket's buffer is full. Never raises SIGPIPE.
   *
   * @param socket connected descriptor
   * @param bytes holds the bytes to send
   * @param offset first of them
   * @param length number of them; at least 1 if there are descriptors
   * @param fds descriptors of which the receiver gets duplicates; they stay the caller's
   * @param flags 0 or {@link #MSG_DONTWAIT}
   * @return bytes sent, on a stream possibly fewer than {@code length}; the descriptors went with
   *     the first of them
   * @throws LibcException if the call fails, EPIPE or ECONNRESET if the peer is gone
   */
  public static int sendmsg(
      int socket, byte[] bytes, int offset, int length, int[] fds, int flags) {
    Objects.checkFromIndexSize(offset, length, bytes.length);
    if (fds.length > MAX_FDS_PER_MESSAGE || (fds.length > 0 && length == 0)) {
      throw new IllegalArgumentException(
          "one message of at least 1 byte carries up to "
              + MAX_FDS_PER_MESSAGE
              + " descriptors, not "
              + fds.length
              + " with "
              + length
              + " bytes");
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment payload = arena.allocate(Math.max(1, length));
      MemorySegment.copy(bytes, offset, payload, JAVA_BYTE, 0, length);
      MemorySegment control = controlBuffer(arena, fds.length);
      if (fds.length > 0) {
        control.set(JAVA_LONG, LibcLayouts.CMSG_LEN, LibcLayouts.controlLength(fds.length));
        control.set(JAVA_INT, LibcLayouts.CMSG_LEVEL, SOL_SOCKET);
        control.set(JAVA_INT, LibcLayouts.CMSG_TYPE, SCM_RIGHTS);
        MemorySegment.copy(fds, 0, control, JAVA_INT, LibcLayouts.CMSG_DATA, fds.length);
      }
      MemorySegment message = LibcLayouts.message(arena, payload, length, control);
      return (int)
          checked(
              "sendmsg",
              () -> "sending " + length + " bytes, " + fds.length + " descriptors to fd " + socket,
              (callArena, errno) ->
                  (long) Sendmsg.HANDLE.invokeExact(errno, socket, message, flags | MSG_NOSIGNAL));
    }
  }

  /**
   * Receives bytes and descriptors (recvmsg(2)). Blocks until there is something or the peer hung
   * up.
   *
   * @param socket connected descriptor
   * @param maxBytes most bytes to take, more than 0
   * @param maxFds most descriptors to take
   * @param flags 0, {@link #MSG_DONTWAIT} or {@link #MSG_PEEK}
   * @return the bytes, none if the peer hung up; and new descriptors with close-on-exec set
   * @throws LibcException if the call fails: EAGAIN if nothing is there and waiting is not wanted;
   *     EMSGSIZE if a packet was longer than {@code maxBytes}, or if descriptors were lost because
   *     there were more than {@code maxFds} or this process may not open more. Those that did
   *     arrive are closed then
   */
  public static ReceivedMessage recvmsg(int socket, int maxBytes, int maxFds, int flags) {
    if (maxBytes <= 0 || maxFds < 0 || maxFds > MAX_FDS_PER_MESSAGE) {
      throw new IllegalArgumentException(maxBytes + " bytes, " + maxFds + " descriptors");
    }
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment payload = arena.allocate(maxBytes);
      MemorySegment control = controlBuffer(arena, maxFds);
      MemorySegment message = LibcLayouts.message(arena, payload, maxBytes, control);
      int received =
          (int)
              checked(
                  "recvmsg",
                  () -> "receiving from fd " + socket,
                  (callArena, errno) ->
                      (long)
                          Recvmsg.HANDLE.invokeExact(
                              errno, socket, message, flags | MSG_CMSG_CLOEXEC));
      int[] fds = receivedFds(message, control);
      int outcome = message.get(JAVA_INT, LibcLayouts.MSGHDR_FLAGS);
      if ((outcome & (MSG_CTRUNC | MSG_TRUNC)) != 0) {
        for (int fd : fds) {
          Descriptors.tryClose(fd);
        }
        String lost =
            (outcome & MSG_CTRUNC) != 0
                ? "descriptors were lost: more than " + maxFds + ", or no room in this process"
                : "a packet was longer than " + maxBytes + " bytes";
        throw failure("recvmsg", Errno.EMSGSIZE, "receiving from fd " + socket + ": " + lost);
      }
      byte[] bytes = new byte[received];
      MemorySegment.copy(payload, JAVA_BYTE, 0, bytes, 0, received);
      return new ReceivedMessage(bytes, fds);
    }
  }

  /**
   * Who is at the other end of a UNIX socket (SO_PEERCRED in unix(7)): the process that called
   * connect or listen.
   *
   * @param socket connected descriptor
   * @return ids as seen from this process's namespaces
   * @throws LibcException if the call fails
   */
  public static PeerCredentials peerCredentials(int socket) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(JAVA_INT, 3);
      MemorySegment length = arena.allocateFrom(JAVA_INT, (int) value.byteSize());
      checked(
          "getsockopt",
          () -> "asking who is connected to fd " + socket,
          (callArena, errno) ->
              (int)
                  Getsockopt.HANDLE.invokeExact(
                      errno, socket, SOL_SOCKET, SO_PEERCRED, value, length));
      return new PeerCredentials(
          value.getAtIndex(JAVA_INT, 0),
          value.getAtIndex(JAVA_INT, 1),
          value.getAtIndex(JAVA_INT, 2));
    }
  }

  /**
   * Ends one or both directions of a connection (shutdown(2)). Wakes up threads blocked in it.
   *
   * @param socket connected descriptor
   * @param how {@code SHUT_*}
   * @throws LibcException if the call fails
   */
  public static void shutdown(int socket, int how) {
    checked(
        "shutdown",
        () -> "shutting down fd " + socket,
        (arena, errno) -> (int) Shutdown.HANDLE.invokeExact(errno, socket, how));
  }

  private static void bind(int socket, byte[] address, Supplier<String> name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sockaddr = arena.allocateFrom(JAVA_BYTE, address);
      checked(
          "bind",
          () -> "binding fd " + socket + " to " + name.get(),
          (callArena, errno) ->
              (int) Bind.HANDLE.invokeExact(errno, socket, sockaddr, (int) sockaddr.byteSize()));
    }
  }

  private static void connect(int socket, byte[] address, Supplier<String> name) {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment sockaddr = arena.allocateFrom(JAVA_BYTE, address);
      checked(
          "connect",
          () -> "connecting fd " + socket + " to " + name.get(),
          (callArena, errno) ->
              (int) Connect.HANDLE.invokeExact(errno, socket, sockaddr, (int) sockaddr.byteSize()));
    }
  }

  /** struct sockaddr_un of an abstract name: family, a zero byte, the name. */
  private static byte[] abstractAddress(byte[] name) {
    if (name.length == 0 || name.length > MAX_ABSTRACT_NAME_BYTES) {
      throw new IllegalArgumentException(
          "an abstract name has 1 to " + MAX_ABSTRACT_NAME_BYTES + " bytes, not " + name.length);
    }
    byte[] address = new byte[Short.BYTES + 1 + name.length];
    address[0] = AF_UNIX; // little-endian, as both processors are under Linux
    System.arraycopy(name, 0, address, Short.BYTES + 1, name.length);
    return address;
  }

  private static String printable(byte[] name) {
    return new String(name, StandardCharsets.ISO_8859_1).replaceAll("[^ -~]", "?");
  }

  /** Room for a control message with that many descriptors, without spare room for another one. */
  private static MemorySegment controlBuffer(Arena arena, int fds) {
    return fds == 0
        ? MemorySegment.NULL
        : arena.allocate(LibcLayouts.controlLength(fds), Long.BYTES);
  }

  private static int[] receivedFds(MemorySegment message, MemorySegment control) {
    long end = Math.min(message.get(JAVA_LONG, LibcLayouts.MSGHDR_CONTROLLEN), control.byteSize());
    int[] fds = NO_FDS;
    long at = 0;
    while (at + LibcLayouts.CMSG_DATA <= end) {
      long length = control.get(JAVA_LONG, at + LibcLayouts.CMSG_LEN);
      if (length < LibcLayouts.CMSG_DATA || length > end - at) {
        break;
      }
      if (control.get(JAVA_INT, at + LibcLayouts.CMSG_LEVEL) == SOL_SOCKET
          && control.get(JAVA_INT, at + LibcLayouts.CMSG_TYPE) == SCM_RIGHTS) {
        int had = fds.length;
        int more = (int) ((length - LibcLayouts.CMSG_DATA) / Integer.BYTES);
        fds = Arrays.copyOf(fds, had + more);
        MemorySegment.copy(control, JAVA_INT, at + LibcLayouts.CMSG_DATA, fds, had, more);
      }
      at += (length + Long.BYTES - 1) / Long.BYTES * Long.BYTES;
    }
    return fds;
  }

  // One holder for each function: a new shape takes 5 to 10 ms to link, and only those that are
  // called are linked.

  // int socket(int domain, int type, int protocol)
  private static final class Socket {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("socket", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int bind(int fd, const struct sockaddr *addr, socklen_t len)
  private static final class Bind {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("bind", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int connect(int fd, const struct sockaddr *addr, socklen_t len)
  private static final class Connect {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("connect", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int listen(int fd, int backlog)
  private static final class Listen {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("listen", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }

  // int accept4(int fd, struct sockaddr *addr, socklen_t *len, int flags)
  private static final class Accept4 {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "accept4", FunctionDescriptor.of(JAVA_INT, JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
  }

  // ssize_t sendmsg(int fd, const struct msghdr *msg, int flags)
  private static final class Sendmsg {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("sendmsg", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // ssize_t recvmsg(int fd, struct msghdr *msg, int flags)
  private static final class Recvmsg {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("recvmsg", FunctionDescriptor.of(JAVA_LONG, JAVA_INT, ADDRESS, JAVA_INT));
  }

  // int getsockopt(int fd, int level, int name, void *value, socklen_t *len)
  private static final class Getsockopt {
    private static final MethodHandle HANDLE =
        BINDER.withErrno(
            "getsockopt",
            FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT, JAVA_INT, ADDRESS, ADDRESS));
  }

  // int shutdown(int fd, int how)
  private static final class Shutdown {
    private static final MethodHandle HANDLE =
        BINDER.withErrno("shutdown", FunctionDescriptor.of(JAVA_INT, JAVA_INT, JAVA_INT));
  }
}

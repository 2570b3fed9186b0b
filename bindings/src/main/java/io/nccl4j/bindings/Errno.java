package io.nccl4j.bindings;

/**
 * The error numbers that callers of {@link Libc} decide upon, and names for the common ones.
 *
 * <p>The values are Linux's generic ones; x86-64 and aarch64 agree on all of them (errno(3)).
 */
public final class Errno {
  /** Operation not permitted. */
  public static final int EPERM = 1;

  /** No such file or directory. */
  public static final int ENOENT = 2;

  /** No such process. */
  public static final int ESRCH = 3;

  /** Interrupted system call; {@link Libc} repeats the call and does not report it. */
  public static final int EINTR = 4;

  /** Bad file descriptor. */
  public static final int EBADF = 9;

  /** Resource temporarily unavailable, also known as EWOULDBLOCK. */
  public static final int EAGAIN = 11;

  /** Cannot allocate memory. */
  public static final int ENOMEM = 12;

  /** Permission denied. */
  public static final int EACCES = 13;

  /** Device or resource busy: somebody else holds the mutex. */
  public static final int EBUSY = 16;

  /** Invalid argument. */
  public static final int EINVAL = 22;

  /** Too many open files in this process. */
  public static final int EMFILE = 24;

  /** No space left on device. */
  public static final int ENOSPC = 28;

  /** Broken pipe: the peer has closed its end. */
  public static final int EPIPE = 32;

  /** Resource deadlock avoided: the calling thread holds the mutex already. */
  public static final int EDEADLK = 35;

  /** Function not implemented by this kernel. */
  public static final int ENOSYS = 38;

  /** Message too long. */
  public static final int EMSGSIZE = 90;

  /** Operation not supported. */
  public static final int EOPNOTSUPP = 95;

  /** Address already in use. */
  public static final int EADDRINUSE = 98;

  /** Connection reset by peer. */
  public static final int ECONNRESET = 104;

  /** Connection timed out: the lock was not obtained in the given time. */
  public static final int ETIMEDOUT = 110;

  /** Connection refused: nobody listens at that address. */
  public static final int ECONNREFUSED = 111;

  /** The thread that held the robust mutex has died; the caller holds it now. */
  public static final int EOWNERDEAD = 130;

  /** The state protected by the robust mutex was given up; the mutex can only be destroyed. */
  public static final int ENOTRECOVERABLE = 131;

  private Errno() {}

  /**
   * The symbolic name of an error number.
   *
   * @param errno an error number as found in {@code errno}
   * @return the name, such as {@code EBADF}, or {@code errno 77} for a number that has no entry
   *     here
   */
  public static String name(int errno) {
    return switch (errno) {
      case EPERM -> "EPERM";
      case ENOENT -> "ENOENT";
      case ESRCH -> "ESRCH";
      case EINTR -> "EINTR";
      case 5 -> "EIO";
      case 6 -> "ENXIO";
      case 7 -> "E2BIG";
      case EBADF -> "EBADF";
      case 10 -> "ECHILD";
      case EAGAIN -> "EAGAIN";
      case ENOMEM -> "ENOMEM";
      case EACCES -> "EACCES";
      case 14 -> "EFAULT";
      case EBUSY -> "EBUSY";
      case 17 -> "EEXIST";
      case 19 -> "ENODEV";
      case 20 -> "ENOTDIR";
      case 21 -> "EISDIR";
      case EINVAL -> "EINVAL";
      case 23 -> "ENFILE";
      case EMFILE -> "EMFILE";
      case 25 -> "ENOTTY";
      case 26 -> "ETXTBSY";
      case 27 -> "EFBIG";
      case ENOSPC -> "ENOSPC";
      case 29 -> "ESPIPE";
      case 30 -> "EROFS";
      case EPIPE -> "EPIPE";
      case 34 -> "ERANGE";
      case EDEADLK -> "EDEADLK";
      case 36 -> "ENAMETOOLONG";
      case ENOSYS -> "ENOSYS";
      case 75 -> "EOVERFLOW";
      case 88 -> "ENOTSOCK";
      case 89 -> "EDESTADDRREQ";
      case EMSGSIZE -> "EMSGSIZE";
      case 91 -> "EPROTOTYPE";
      case 92 -> "ENOPROTOOPT";
      case 93 -> "EPROTONOSUPPORT";
      case EOPNOTSUPP -> "EOPNOTSUPP";
      case 97 -> "EAFNOSUPPORT";
      case EADDRINUSE -> "EADDRINUSE";
      case 99 -> "EADDRNOTAVAIL";
      case ECONNRESET -> "ECONNRESET";
      case 105 -> "ENOBUFS";
      case 106 -> "EISCONN";
      case 107 -> "ENOTCONN";
      case 109 -> "ETOOMANYREFS";
      case ETIMEDOUT -> "ETIMEDOUT";
      case ECONNREFUSED -> "ECONNREFUSED";
      case 114 -> "EALREADY";
      case 115 -> "EINPROGRESS";
      case EOWNERDEAD -> "EOWNERDEAD";
      case ENOTRECOVERABLE -> "ENOTRECOVERABLE";
      default -> "errno " + errno;
    };
  }
}

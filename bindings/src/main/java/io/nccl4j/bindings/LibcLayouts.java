package io.nccl4j.bindings;

import static java.lang.foreign.MemoryLayout.PathElement.groupElement;
import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import java.lang.foreign.Arena;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;

/**
 * The C structures that the calls of {@link Libc} pass, the same on x86-64 and aarch64.
 *
 * <p>musl declares some lengths as a 32-bit number and padding; written as a small 64-bit number
 * they are the same bytes on these little-endian processors.
 */
final class LibcLayouts {
  // struct pollfd { int fd; short events; short revents; }
  static final StructLayout POLLFD =
      MemoryLayout.structLayout(
          JAVA_INT.withName("fd"), JAVA_SHORT.withName("events"), JAVA_SHORT.withName("revents"));
  static final long POLLFD_FD = offset(POLLFD, "fd");
  static final long POLLFD_EVENTS = offset(POLLFD, "events");
  static final long POLLFD_REVENTS = offset(POLLFD, "revents");

  // struct iovec { void *iov_base; size_t iov_len; }
  static final StructLayout IOVEC =
      MemoryLayout.structLayout(ADDRESS.withName("iov_base"), JAVA_LONG.withName("iov_len"));
  static final long IOVEC_BASE = offset(IOVEC, "iov_base");
  static final long IOVEC_LEN = offset(IOVEC, "iov_len");

  // struct msghdr { void *msg_name; socklen_t msg_namelen; struct iovec *msg_iov; size_t
  // msg_iovlen;
  //                 void *msg_control; size_t msg_controllen; int msg_flags; }
  static final StructLayout MSGHDR =
      MemoryLayout.structLayout(
          ADDRESS.withName("msg_name"),
          JAVA_INT.withName("msg_namelen"),
          MemoryLayout.paddingLayout(4),
          ADDRESS.withName("msg_iov"),
          JAVA_LONG.withName("msg_iovlen"),
          ADDRESS.withName("msg_control"),
          JAVA_LONG.withName("msg_controllen"),
          JAVA_INT.withName("msg_flags"),
          MemoryLayout.paddingLayout(4));
  static final long MSGHDR_IOV = offset(MSGHDR, "msg_iov");
  static final long MSGHDR_IOVLEN = offset(MSGHDR, "msg_iovlen");
  static final long MSGHDR_CONTROL = offset(MSGHDR, "msg_control");
  static final long MSGHDR_CONTROLLEN = offset(MSGHDR, "msg_controllen");
  static final long MSGHDR_FLAGS = offset(MSGHDR, "msg_flags");

  // struct cmsghdr { size_t cmsg_len; int cmsg_level; int cmsg_type; }, followed by the data
  static final StructLayout CMSGHDR =
      MemoryLayout.structLayout(
          JAVA_LONG.withName("cmsg_len"),
          JAVA_INT.withName("cmsg_level"),
          JAVA_INT.withName("cmsg_type"));
  static final long CMSG_LEN = offset(CMSGHDR, "cmsg_len");
  static final long CMSG_LEVEL = offset(CMSGHDR, "cmsg_level");
  static final long CMSG_TYPE = offset(CMSGHDR, "cmsg_type");
  static final long CMSG_DATA = CMSGHDR.byteSize();

  /** Unit of {@code stx_blocks} in bytes. */
  static final long BLOCK_BYTES = 512;

  // struct statx of statx(2); its size and offsets are the kernel's and alike everywhere
  static final StructLayout STATX =
      MemoryLayout.structLayout(
          JAVA_INT.withName("stx_mask"),
          JAVA_INT.withName("stx_blksize"),
          JAVA_LONG.withName("stx_attributes"),
          JAVA_INT.withName("stx_nlink"),
          JAVA_INT.withName("stx_uid"),
          JAVA_INT.withName("stx_gid"),
          JAVA_SHORT.withName("stx_mode"),
          MemoryLayout.paddingLayout(2),
          JAVA_LONG.withName("stx_ino"),
          JAVA_LONG.withName("stx_size"),
          JAVA_LONG.withName("stx_blocks"),
          JAVA_LONG.withName("stx_attributes_mask"),
          MemoryLayout.sequenceLayout(8, JAVA_LONG).withName("times"),
          JAVA_INT.withName("stx_rdev_major"),
          JAVA_INT.withName("stx_rdev_minor"),
          JAVA_INT.withName("stx_dev_major"),
          JAVA_INT.withName("stx_dev_minor"),
          MemoryLayout.sequenceLayout(14, JAVA_LONG).withName("later"));
  static final long STATX_INO = offset(STATX, "stx_ino");
  static final long STATX_SIZE = offset(STATX, "stx_size");
  static final long STATX_BLOCKS = offset(STATX, "stx_blocks");
  static final long STATX_DEV_MAJOR = offset(STATX, "stx_dev_major");
  static final long STATX_DEV_MINOR = offset(STATX, "stx_dev_minor");

  private LibcLayouts() {}

  private static long offset(StructLayout struct, String field) {
    return struct.byteOffset(groupElement(field));
  }

  /** CMSG_LEN in cmsg(3): bytes of a control message with that many descriptors. */
  static long controlLength(int fds) {
    return CMSG_DATA + (long) fds * Integer.BYTES;
  }

  /** A message over one buffer, allocated in {@code arena}. */
  static MemorySegment message(
      Arena arena, MemorySegment payload, long payloadBytes, MemorySegment control) {
    MemorySegment vector = arena.allocate(IOVEC);
    vector.set(ADDRESS, IOVEC_BASE, payload);
    vector.set(JAVA_LONG, IOVEC_LEN, payloadBytes);
    MemorySegment message = arena.allocate(MSGHDR);
    message.set(ADDRESS, MSGHDR_IOV, vector);
    message.set(JAVA_LONG, MSGHDR_IOVLEN, 1);
    message.set(ADDRESS, MSGHDR_CONTROL, control);
    message.set(JAVA_LONG, MSGHDR_CONTROLLEN, control.byteSize());
    return message;
  }
}

package io.nccl4j.bindings;

/**
 * What {@link UnixSockets#recvmsg} took from a socket. The arrays are not copied.
 *
 * @param bytes the bytes; empty if the peer hung up
 * @param fds new descriptors, the receiver's to close
 */
public record ReceivedMessage(byte[] bytes, int[] fds) {}

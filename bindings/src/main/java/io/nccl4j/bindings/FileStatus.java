package io.nccl4j.bindings;

/**
 * Size and identity of an open file, as of {@link Descriptors#fstat}.
 *
 * @param size bytes of the file, holes included
 * @param allocatedBytes bytes that memory or disk was taken for
 * @param inode number of the file on its device
 * @param device number of the device; only good for comparing
 */
public record FileStatus(long size, long allocatedBytes, long inode, long device) {}

package io.nccl4j.bindings;

/**
 * The process at the other end of a UNIX socket, as of {@link UnixSockets#peerCredentials}.
 *
 * @param pid process id in this process's PID namespace; 0 if it has none there
 * @param uid effective user id, an unsigned number
 * @param gid effective group id, an unsigned number
 */
public record PeerCredentials(int pid, int uid, int gid) {}

package io.nccl4j.internal.net;

import java.net.InetAddress;

/** A job's way to other machines. Any thread may use it. */
public interface Network extends AutoCloseable {
  /** What it is, for people: the engine and what it runs on. */
  String name();

  /** Where its ports are reached. */
  InetAddress address();

  /**
   * A new way in and out, which others reach by its {@link Port#address}.
   *
   * @throws io.nccl4j.SystemException if there is no free TCP port, no descriptor or no memory
   */
  Port newPort();

  /** Gives back what it shares among its ports, which are closed before. */
  @Override
  void close();
}

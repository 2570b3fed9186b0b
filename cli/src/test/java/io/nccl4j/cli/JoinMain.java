package io.nccl4j.cli;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.SharedMemoryException;
import io.nccl4j.UniqueId;

/**
 * One of two ranks on the cuda backend, in a process of its own: joins, and prints how that failed
 * and after how many milliseconds.
 */
final class JoinMain {
  private JoinMain() {}

  public static void main(String[] arguments) {
    Device device = Device.get(Backend.CUDA, 0);
    UniqueId id = UniqueId.create(Backend.CUDA);
    long start = System.nanoTime();
    try {
      Communicator.initRank(device, 2, id, 0).close();
      System.out.println("joined");
    } catch (SharedMemoryException e) {
      long millis = (System.nanoTime() - start) / 1_000_000;
      System.out.println("refused " + millis + " " + e.needBytes() + " " + e.freeBytes());
      System.out.println(e.getMessage());
    }
  }
}

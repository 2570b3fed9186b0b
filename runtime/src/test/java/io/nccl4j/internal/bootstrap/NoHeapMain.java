package io.nccl4j.internal.bootstrap;

import io.nccl4j.NcclException;
import java.time.Duration;
import java.util.HexFormat;
import java.util.UUID;

/** Tries to join somebody else's rendezvous without a heap. */
public final class NoHeapMain {
  private NoHeapMain() {}

  public static void main(String[] args) {
    byte[] id = HexFormat.of().parseHex(args[0]);
    try {
      Joiner joiner = new Joiner(1, 2, UUID.randomUUID(), 77, -1, 0, -1);
      Rendezvous.join(id, joiner, Duration.ofSeconds(10)).close();
      System.out.println("joined");
    } catch (NcclException e) {
      System.out.println("failed " + e.getClass().getSimpleName() + ": " + e.getMessage());
    }
  }
}

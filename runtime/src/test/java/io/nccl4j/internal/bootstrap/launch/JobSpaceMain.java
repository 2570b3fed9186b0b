package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.Backend;
import io.nccl4j.Launch;
import io.nccl4j.NcclException;

/** A process of a job that asks for two unique ids, and prints them. */
final class JobSpaceMain {
  private JobSpaceMain() {}

  public static void main(String[] arguments) {
    try (Launch launch = Launch.detect().orElseThrow()) {
      System.out.println("id " + launch.uniqueId(Backend.HOST));
      System.out.println("id " + launch.uniqueId(Backend.HOST));
    } catch (NcclException e) {
      System.out.println("failed " + e.getMessage());
    }
    System.out.println("through");
  }
}

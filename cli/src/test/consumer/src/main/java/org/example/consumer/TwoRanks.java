package org.example.consumer;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.Provider;
import io.nccl4j.ReduceOp;

/** Adds numbers of two ranks; says which nccl4j did it, and whether that is a named module. */
public final class TwoRanks {
  private TwoRanks() {}

  /** The program. */
  public static void main(String[] args) throws Exception {
    try (Communicators ranks = Communicator.initAll(Backend.HOST, 2)) {
      ranks.run(
          comm -> {
            float[] data = {1 + comm.rank(), 2};
            comm.allReduce(data, ReduceOp.SUM);
            if (comm.rank() == 0) {
              String module = Communicator.class.getModule().isNamed() ? "module" : "class path";
              System.out.println(
                  Provider.get().version() + ", " + module + ": " + data[0] + " " + data[1]);
            }
          });
    }
  }
}

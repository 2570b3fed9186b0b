package io.nccl4j.internal.host.engine;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.memory.Quarantine;

/** Whether the ranks of a communicator are at one: none has failed, and all call the same. */
public interface Accord extends Quarantine.Peers {
  /** Whether this rank has not failed, as far as it knows. */
  boolean isGood();

  /**
   * Whether nobody has failed, as far as is known when all reads before this call are done. Before
   * that holds no rank may write to others' buffers, and what it has read of them counts only if it
   * still holds afterwards.
   */
  boolean isGoodForAll();

  /** Ranks called different things. Fails; the caller throws. */
  NcclException mismatch(EngineWork work, int peer);

  /** The counts of a pair in a v-form differ. Fails; the caller throws. */
  NcclException countMismatch(EngineWork work, int peer, long theirs, long own, String verb);
}

package io.nccl4j.internal.host.life;

import io.nccl4j.internal.host.engine.EngineWork;

/** A rank of this process, as the others of its communicator here see it. */
public interface LocalRank {
  /** How it is. */
  Health health();

  /** Whether it issues nothing any more. */
  boolean hasTaskEnded();

  /** Whether its task has ended without calling what a work of another rank needs of it. */
  boolean hasEndedWithout(EngineWork work, int other);
}

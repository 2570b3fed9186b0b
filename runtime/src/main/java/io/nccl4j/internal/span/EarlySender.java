package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;

/** What carries some kind of collectives, as far as it sends their data before their turn. */
interface EarlySender {
  /** The ranks to which it sends. */
  int[] peers();

  /** How many transfers a small collective has to each of them, at most; 0 if none leaves here. */
  int transfers(EngineWork w);

  /** Bytes of each, at most. */
  long bytes(EngineWork w);

  /** Begins these transfers, for which there is room; all leave at once. */
  void send(EngineWork w, CollectiveEngine engine);
}

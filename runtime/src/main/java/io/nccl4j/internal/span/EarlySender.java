package io.nccl4j.internal.span;

import io.nccl4j.internal.host.engine.CollectiveEngine;
import io.nccl4j.internal.host.engine.EngineWork;

/** Sends the data of some kind of collectives before their turn. */
interface EarlySender {
  /** The ranks to which it sends. */
  int[] peers();

  /** How many transfers of a small collective go to each of them at most; 0 if none leaves here. */
  int transfers(EngineWork w);

  /** Bytes of each, at most. */
  long bytes(EngineWork w);

  /** Begins these transfers, for which there is room; all leave at once. */
  void send(EngineWork w, CollectiveEngine engine);
}

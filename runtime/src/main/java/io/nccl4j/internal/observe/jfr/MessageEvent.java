package io.nccl4j.internal.observe.jfr;

import io.nccl4j.internal.observe.Observed;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Label;
import jdk.jfr.Name;

/** A send, a receive or a one-sided operation of one rank. */
@Name("io.nccl4j.Message")
@Label("Message")
@Description(
    "A send, receive or one-sided operation of one rank, from being submitted to being known to be"
        + " complete")
@Enabled(false)
final class MessageEvent extends OperationFields {
  @Label("Peer")
  @Description("The other rank; -1 where there is none")
  int peer;

  @Override
  void set(Observed of, long nanos, long waitNanos, boolean isComplete) {
    super.set(of, nanos, waitNanos, isComplete);
    peer = of.rootOrPeer();
  }
}

package io.nccl4j.internal.observe.jfr;

import io.nccl4j.internal.observe.Observed;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Timespan;

/** A collective of one rank. */
@Name("io.nccl4j.Collective")
@Label("Collective")
@Description("A collective of one rank, from being submitted to being known to be complete")
@Enabled(false)
final class CollectiveEvent extends OperationFields {
  @Label("Reduction")
  String reduction = "";

  @Label("Root")
  @Description("The root's rank; -1 where there is none")
  int root;

  @Label("Protocol")
  @Description("How the host backend carried it out; empty on the cuda backend")
  String protocol = "";

  @Label("Wait Time")
  @Description("Until earlier operations were complete and all ranks of this host had come")
  @Timespan(Timespan.NANOSECONDS)
  long waitTime;

  @Label("Run Time")
  @Description("From then on")
  @Timespan(Timespan.NANOSECONDS)
  long runTime;

  @Override
  void set(Observed of, long nanos, long waitNanos, boolean isComplete) {
    super.set(of, nanos, waitNanos, isComplete);
    reduction = of.reductionLabel();
    root = of.rootOrPeer();
    protocol = of.protocol();
    waitTime = waitNanos < 0 ? FlightRecording.UNKNOWN : waitNanos;
    runTime = waitNanos < 0 ? FlightRecording.UNKNOWN : nanos - waitNanos;
  }
}

package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Threshold;
import jdk.jfr.Timespan;

/** A wait that lasts. */
@Name("io.nccl4j.Stall")
@Label("Stall")
@Category("nccl4j")
@Description(
    "An operation has been waited for longer than the threshold; again whenever the wait is twice"
        + " as long. Recorded while it lasts")
@StackTrace(false)
@Threshold("1 s")
final class StalledEvent extends Event {
  @Label("Operation")
  String operation = "";

  @Label("Communicator")
  String communicator = "";

  @Label("Rank")
  @Description("The rank that waits")
  int rank;

  @Label("Sequence Number")
  long sequence;

  @Label("Waited")
  @Description("Since it was first waited for in vain")
  @Timespan(Timespan.NANOSECONDS)
  long waited;

  @Label("Waiting For")
  @Description("The ranks that have not come, and their last operations")
  String waitingFor = "";
}

package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;
import jdk.jfr.Timespan;

/** The creation of a communicator. */
@Name("io.nccl4j.Join")
@Label("Join")
@Category("nccl4j")
@Description("A communicator was created by ranks of this process, or could not be")
@StackTrace(false)
final class JoinedEvent extends Event {
  @Label("Call")
  @Description("initAll, initRank, split, survivors, shrink or grow")
  String call = "";

  @Label("Communicator")
  String communicator = "";

  @Label("Backend")
  String backend = "";

  @Label("Own Ranks")
  @Description("The ranks that this call created")
  String ownRanks = "";

  @Label("Ranks")
  @Description("Number of ranks of the communicator")
  int ranks;

  @Label("Meeting Time")
  @Description("Until all ranks had met; unknown where they do not meet by a unique id of the host")
  @Timespan(Timespan.NANOSECONDS)
  long meetingTime;

  @Label("Failure")
  @Description("Why it was not created; empty if it was")
  String failure = "";
}

package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;

/** A communicator's failure. */
@Name("io.nccl4j.Failure")
@Label("Failure")
@Category("nccl4j")
@Description("A communicator has failed on this rank")
final class FailureEvent extends Event {
  @Label("Communicator")
  String communicator = "";

  @Label("Rank")
  int rank;

  @Label("Type")
  @Description("Class of the exception")
  String type = "";

  @Label("Message")
  String message = "";

  @Label("Failed Ranks")
  @Description("Where the failure began, as far as known")
  String failedRanks = "";
}

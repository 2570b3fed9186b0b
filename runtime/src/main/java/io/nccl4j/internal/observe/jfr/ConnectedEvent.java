package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** A connection to another process. */
@Name("io.nccl4j.Connect")
@Label("Connect")
@Category("nccl4j")
@Description("A connection to another process was made and authenticated, or failed")
@StackTrace(false)
final class ConnectedEvent extends Event {
  @Label("Network")
  @Description("What it goes through: shared memory, TCP, TLS or UCX")
  String network = "";

  @Label("Address")
  @Description("The other end")
  String address = "";

  @Label("Dialed")
  @Description("Whether this process made it, rather than the other one")
  boolean dialed;

  @Label("Failure")
  @Description("Why it was not made; empty if it was")
  String failure = "";
}

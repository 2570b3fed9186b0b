package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.StackTrace;

/** A launch of a graph. */
@Name("io.nccl4j.GraphLaunch")
@Label("Graph Launch")
@Category("nccl4j")
@Description("A graph was launched. Its operations have no events of their own")
@StackTrace(false)
@Enabled(false)
final class GraphLaunchEvent extends Event {
  @Label("Operations")
  @Description("Number of operations of communicators in the graph")
  int operations;

  @Label("Stream")
  long stream;
}

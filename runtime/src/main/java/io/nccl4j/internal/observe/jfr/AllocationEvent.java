package io.nccl4j.internal.observe.jfr;

import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Enabled;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.Name;

/** Memory that was taken. */
@Name("io.nccl4j.Allocation")
@Label("Allocation")
@Category("nccl4j")
@Description("Memory was taken, or what was taken has grown")
@Enabled(false)
final class AllocationEvent extends Event {
  @Label("Owner")
  @Description("A device, or a rank of a communicator")
  String owner = "";

  @Label("Purpose")
  String purpose = "";

  @Label("Place")
  @Description("Where it lies, such as the heap, or a device")
  String place = "";

  @Label("Bytes")
  @DataAmount
  long bytes;
}

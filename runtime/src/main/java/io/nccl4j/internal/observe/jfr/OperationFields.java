package io.nccl4j.internal.observe.jfr;

import io.nccl4j.internal.observe.Observed;
import jdk.jfr.Category;
import jdk.jfr.DataAmount;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.Label;
import jdk.jfr.StackTrace;

/** What the events of operations have in common. */
@Category("nccl4j")
@StackTrace(false)
abstract class OperationFields extends Event {
  @Label("Operation")
  String operation = "";

  @Label("Communicator")
  String communicator = "";

  @Label("Rank")
  int rank;

  @Label("Ranks")
  @Description("Number of ranks of the communicator")
  int ranks;

  @Label("Sequence Number")
  @Description("Of the communicator for collectives, of the pair of ranks for messages; from 1")
  long sequence;

  @Label("Count")
  @Description("Elements, by the operation's own meaning of count")
  long count;

  @Label("Type")
  @Description("Element type")
  String type = "";

  @Label("Bytes")
  @Description("The larger of what this rank sends and what it receives")
  @DataAmount
  long bytes;

  @Label("Stream")
  @Description("Number of the stream, in order of creation; from 1")
  long stream;

  @Label("Complete")
  @Description("Whether it succeeded")
  boolean complete;

  /**
   * Sets all fields when the operation has ended.
   *
   * @param nanos since it was submitted
   * @param waitNanos until it could be carried out; negative if unknown
   */
  void set(Observed of, long nanos, long waitNanos, boolean isComplete) {
    operation = of.label();
    communicator = of.communicatorName();
    rank = of.rank();
    ranks = of.nranks();
    sequence = of.sequence();
    count = of.elements();
    type = of.typeLabel();
    bytes = of.bytes();
    stream = of.streamNumber();
    complete = isComplete;
  }
}

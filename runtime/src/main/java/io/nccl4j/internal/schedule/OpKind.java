package io.nccl4j.internal.schedule;

/** The operations of a communicator. */
public enum OpKind {
  /** See {@link io.nccl4j.Communicator#allReduce}. */
  ALL_REDUCE("allReduce", true, false),
  /** See {@link io.nccl4j.Communicator#broadcast}. */
  BROADCAST("broadcast", false, true),
  /** See {@link io.nccl4j.Communicator#reduce}. */
  REDUCE("reduce", true, true),
  /** See {@link io.nccl4j.Communicator#allGather}. */
  ALL_GATHER("allGather", false, false),
  /** See {@link io.nccl4j.Communicator#reduceScatter}. */
  REDUCE_SCATTER("reduceScatter", true, false),
  /** See {@link io.nccl4j.Communicator#allToAll}. */
  ALL_TO_ALL("allToAll", false, false),
  /** See {@link io.nccl4j.Communicator#gather}. */
  GATHER("gather", false, true),
  /** See {@link io.nccl4j.Communicator#scatter}. */
  SCATTER("scatter", false, true),
  /** See {@link io.nccl4j.Communicator#allGatherV}. */
  ALL_GATHER_V("allGatherV", false, false),
  /** See {@link io.nccl4j.Communicator#reduceScatterV}. */
  REDUCE_SCATTER_V("reduceScatterV", true, false),
  /** See {@link io.nccl4j.Communicator#allToAllV}. */
  ALL_TO_ALL_V("allToAllV", false, false),
  /** See {@link io.nccl4j.Communicator#gatherV}. */
  GATHER_V("gatherV", false, true),
  /** See {@link io.nccl4j.Communicator#scatterV}. */
  SCATTER_V("scatterV", false, true),
  /** See {@link io.nccl4j.Communicator#barrier}. */
  BARRIER("barrier", false, false),
  /** See {@link io.nccl4j.Communicator#send}. */
  SEND("send", false, true),
  /** See {@link io.nccl4j.Communicator#recv}. */
  RECV("recv", false, true),
  /** See {@link io.nccl4j.NcclCommunicator#putSignal}. */
  PUT_SIGNAL("putSignal", false, true),
  /** See {@link io.nccl4j.NcclCommunicator#signal}. */
  SIGNAL("signal", false, true),
  /** See {@link io.nccl4j.NcclCommunicator#waitSignals}. */
  WAIT_SIGNALS("waitSignals", false, false);

  private static final OpKind[] VALUES = values();

  /** How many there are. */
  static final int COUNT = VALUES.length;

  private final String label;
  private final boolean reducing;
  private final boolean rooted;

  OpKind(String label, boolean reducing, boolean rooted) {
    this.label = label;
    this.reducing = reducing;
    this.rooted = rooted;
  }

  /** The method's name. */
  public String label() {
    return label;
  }

  /** Whether it takes a reduction. */
  public boolean isReducing() {
    return reducing;
  }

  /** Whether it takes a root or a peer. */
  public boolean isRooted() {
    return rooted;
  }

  /** Whether each rank has a count of its own. */
  public boolean hasCountPerRank() {
    return switch (this) {
      case ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V, GATHER_V, SCATTER_V -> true;
      default -> false;
    };
  }

  /** Whether it is a send or a receive rather than a collective. */
  public boolean isPointToPoint() {
    return this == SEND || this == RECV;
  }

  /** Whether it is of one rank alone: a write into a peer's window, or a signal. */
  public boolean isOneSided() {
    return this == PUT_SIGNAL || this == SIGNAL || this == WAIT_SIGNALS;
  }

  /** The kind with this ordinal, without the copy that {@code values()} makes. */
  public static OpKind ofOrdinal(int ordinal) {
    return VALUES[ordinal];
  }
}

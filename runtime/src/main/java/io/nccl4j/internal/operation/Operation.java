package io.nccl4j.internal.operation;

import static io.nccl4j.internal.operation.Party.ALL;
import static io.nccl4j.internal.operation.Party.PEER;
import static io.nccl4j.internal.operation.Party.ROOT;
import static io.nccl4j.internal.operation.Shape.EACH;
import static io.nccl4j.internal.operation.Shape.NOTHING;
import static io.nccl4j.internal.operation.Shape.ONE;
import static io.nccl4j.internal.operation.Shape.VARYING;

import java.util.ArrayList;
import java.util.List;

/**
 * An operation of a communicator: who sends and who receives, how their buffers are divided, and
 * whether blocks are reduced or moved. What is checked, what the ranks compare, and which block of
 * which rank goes where follow from that, in all backends.
 *
 * <p>A record, whose fields the compiler takes for constants.
 *
 * @param number what stands for it in shared memory
 * @param label the method's name
 * @param reducing whether blocks are reduced rather than moved
 * @param senders whose data it takes
 * @param sent how their send buffers are divided
 * @param receivers who gets a result
 * @param received how their receive buffers are divided
 */
public record Operation(
    int number,
    String label,
    boolean reducing,
    Party senders,
    Shape sent,
    Party receivers,
    Shape received) {
  private static final List<Operation> DEFINED = new ArrayList<>();

  /** See {@link io.nccl4j.Communicator#allReduce}. */
  public static final Operation ALL_REDUCE = reduces("allReduce", ALL, ONE, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#broadcast}. */
  public static final Operation BROADCAST = moves("broadcast", ROOT, ONE, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#reduce}. */
  public static final Operation REDUCE = reduces("reduce", ALL, ONE, ROOT, ONE);

  /** See {@link io.nccl4j.Communicator#allGather}. */
  public static final Operation ALL_GATHER = moves("allGather", ALL, ONE, ALL, EACH);

  /** See {@link io.nccl4j.Communicator#reduceScatter}. */
  public static final Operation REDUCE_SCATTER = reduces("reduceScatter", ALL, EACH, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#allToAll}. */
  public static final Operation ALL_TO_ALL = moves("allToAll", ALL, EACH, ALL, EACH);

  /** See {@link io.nccl4j.Communicator#gather}. */
  public static final Operation GATHER = moves("gather", ALL, ONE, ROOT, EACH);

  /** See {@link io.nccl4j.Communicator#scatter}. */
  public static final Operation SCATTER = moves("scatter", ROOT, EACH, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#allGatherV}. */
  public static final Operation ALL_GATHER_V = moves("allGatherV", ALL, ONE, ALL, VARYING);

  /** See {@link io.nccl4j.Communicator#reduceScatterV}. */
  public static final Operation REDUCE_SCATTER_V =
      reduces("reduceScatterV", ALL, VARYING, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#allToAllV}. */
  public static final Operation ALL_TO_ALL_V = moves("allToAllV", ALL, VARYING, ALL, VARYING);

  /** See {@link io.nccl4j.Communicator#gatherV}. */
  public static final Operation GATHER_V = moves("gatherV", ALL, ONE, ROOT, VARYING);

  /** See {@link io.nccl4j.Communicator#scatterV}. */
  public static final Operation SCATTER_V = moves("scatterV", ROOT, VARYING, ALL, ONE);

  /** See {@link io.nccl4j.Communicator#barrier}. */
  public static final Operation BARRIER = moves("barrier", ALL, NOTHING, ALL, NOTHING);

  /** See {@link io.nccl4j.Communicator#send}. */
  public static final Operation SEND = moves("send", ALL, ONE, PEER, NOTHING);

  /** See {@link io.nccl4j.Communicator#recv}. */
  public static final Operation RECV = moves("recv", PEER, NOTHING, ALL, ONE);

  /** See {@link io.nccl4j.cuda.NcclCommunicator#putSignal}. */
  public static final Operation PUT_SIGNAL = moves("putSignal", ALL, ONE, PEER, NOTHING);

  /** See {@link io.nccl4j.cuda.NcclCommunicator#signal}. */
  public static final Operation SIGNAL = moves("signal", ALL, NOTHING, PEER, NOTHING);

  /** See {@link io.nccl4j.cuda.NcclCommunicator#waitSignals}. */
  public static final Operation WAIT_SIGNALS = moves("waitSignals", ALL, NOTHING, ALL, NOTHING);

  private static Operation reduces(
      String label, Party senders, Shape sent, Party receivers, Shape received) {
    return define(label, true, senders, sent, receivers, received);
  }

  private static Operation moves(
      String label, Party senders, Shape sent, Party receivers, Shape received) {
    return define(label, false, senders, sent, receivers, received);
  }

  private static Operation define(
      String label, boolean reducing, Party senders, Shape sent, Party receivers, Shape received) {
    Operation operation =
        new Operation(DEFINED.size(), label, reducing, senders, sent, receivers, received);
    DEFINED.add(operation);
    return operation;
  }

  /** How many there are. */
  public static int count() {
    return DEFINED.size();
  }

  /** The operation with this number. */
  public static Operation of(int number) {
    return DEFINED.get(number);
  }

  /** Whether it takes a root or a peer. */
  public boolean isRooted() {
    return senders != ALL || receivers != ALL;
  }

  /** Whether only one rank calls it: a write into a peer's window, or a signal; defined last. */
  public boolean isOneSided() {
    return number >= PUT_SIGNAL.number;
  }

  /** Whether all ranks call it; defined before the others. */
  public boolean isCollective() {
    return number < SEND.number;
  }

  /** Whether each block has a count of its own. */
  public boolean varies() {
    return sent == VARYING || received == VARYING;
  }

  /** Whether all ranks pass the counts of all blocks. */
  public boolean hasCommonCounts() {
    return varies() && sent != received && !isRooted();
  }

  /** Whether only its sender and its receiver know the count of a block. */
  public boolean hasPairCounts() {
    return varies() && !hasCommonCounts();
  }

  /** Whether all receivers get the same block, of which each rank can make a share for all. */
  public boolean isShared() {
    return sent == ONE && received == ONE;
  }

  /** Whether a rank's data is taken. */
  public boolean sends(boolean isRoot) {
    return senders == ALL || isRoot;
  }

  /** Whether a rank gets a result. */
  public boolean receives(boolean isRoot) {
    return receivers == ALL || isRoot;
  }
}

package io.nccl4j;

import java.util.List;
import java.util.stream.Collectors;

/**
 * A snapshot of what one rank of a communicator has submitted since it was created, and of how full
 * its work FIFO is. Each number is exact, but they are read one after the other while work goes on.
 *
 * <p>Operations of graphs are counted at each launch. They take no room in the FIFO. Operations in
 * an open group take room, but are counted as submitted only when the group is launched. What
 * {@link Communicator#split} and {@link Communicator#warmUp} issue is counted, too.
 *
 * @param collectives collectives submitted, barriers included
 * @param sends sends submitted
 * @param receives receives submitted
 * @param graphLaunches launches of graphs with operations of this communicator
 * @param unfinishedWorks incomplete operations that occupy room in the FIFO
 * @param unfinishedGraphLaunches the incomplete ones of {@code graphLaunches}
 * @param fifoBytes size of the work FIFO, see {@link CommunicatorConfig#fifoBytes()}
 * @param fifoOccupiedBytes bytes of the FIFO in use, from the oldest unfinished operation to the
 *     newest
 * @param fifoHighWaterBytes the most bytes ever in use at once
 * @param fifoFull how often a caller had to wait because the FIFO was full
 * @param fifoWaitNanos time that callers waited for room in the FIFO, in ns; only waits that have
 *     ended
 * @param operations each operation, in a fixed order
 */
public record CommunicatorCounters(
    long collectives,
    long sends,
    long receives,
    long graphLaunches,
    long unfinishedWorks,
    long unfinishedGraphLaunches,
    long fifoBytes,
    long fifoOccupiedBytes,
    long fifoHighWaterBytes,
    long fifoFull,
    long fifoWaitNanos,
    List<OperationCounters> operations) {
  /** Copies the list. */
  public CommunicatorCounters {
    operations = List.copyOf(operations);
  }

  /**
   * One operation.
   *
   * @param operation the name of its method, such as {@code allReduce}
   * @throws InvalidArgumentException if there is no such operation
   */
  public OperationCounters operation(String operation) {
    return operations.stream()
        .filter(counters -> counters.operation().equals(operation))
        .findFirst()
        .orElseThrow(
            () ->
                new InvalidArgumentException(
                    "there is no operation '" + operation + "'",
                    "use one of "
                        + operations.stream()
                            .map(OperationCounters::operation)
                            .collect(Collectors.joining(", "))));
  }
}

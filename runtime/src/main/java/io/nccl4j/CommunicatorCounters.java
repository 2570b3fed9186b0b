package io.nccl4j;

/**
 * What one rank of a communicator has submitted since it was made, and how full its work FIFO is: a
 * snapshot whose numbers are each right, but are read one after the other while work goes on.
 *
 * <p>Operations of graphs are counted at each launch. They take no room in the FIFO. Operations in
 * an open group take room, but are counted as submitted only when the group is launched. What
 * {@link Communicator#split} and {@link Communicator#warmUp} issue is counted, too.
 *
 * @param collectives collectives submitted, barriers included
 * @param sends sends submitted
 * @param receives receives submitted
 * @param graphLaunches launches of graphs with operations of this communicator
 * @param unfinishedWorks operations that have room in the FIFO and are not complete
 * @param unfinishedGraphLaunches of {@code graphLaunches}, those that are not complete
 * @param fifoBytes size of the work FIFO, see {@link CommunicatorConfig#fifoBytes()}
 * @param fifoOccupiedBytes bytes of the FIFO that are taken, counted from the oldest unfinished
 *     operation to the newest one
 * @param fifoHighWaterBytes the most bytes that were ever taken at once
 * @param fifoFull how often an operation found the FIFO full, and its caller had to wait
 * @param fifoWaitNanos time that callers waited for room in the FIFO, in ns, ended waits only
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
    long fifoWaitNanos) {}

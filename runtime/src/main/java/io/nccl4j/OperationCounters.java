package io.nccl4j;

/**
 * What one rank of a communicator has submitted of one operation, as listed by {@link
 * CommunicatorCounters#operations()}.
 *
 * <p>Calls and bytes are always counted, those of graphs at each launch. Times are counted while
 * {@link CommunicatorConfig#timesOperations()} is on, or a flight recording has events of
 * operations; not for operations in graphs. Their mean is {@code timeNanos / timedCalls}.
 *
 * @param operation the name of its method, such as {@code allReduce}
 * @param calls how often it was submitted
 * @param bytes bytes of this rank's buffers: of each call, the larger of what it sends and what it
 *     receives
 * @param timedCalls calls that were timed and have ended
 * @param timeNanos time of those calls, in ns, from being submitted to being known to be complete
 * @param maxTimeNanos the longest of these times, in ns
 * @param waitNanos the part of {@code timeNanos}, in ns, in which earlier operations and other
 *     ranks of this host were waited for; 0 on the cuda backend, where NCCL does not tell
 */
public record OperationCounters(
    String operation,
    long calls,
    long bytes,
    long timedCalls,
    long timeNanos,
    long maxTimeNanos,
    long waitNanos) {}

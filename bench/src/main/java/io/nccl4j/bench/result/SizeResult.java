package io.nccl4j.bench.result;

import java.time.LocalDateTime;
import org.jspecify.annotations.Nullable;

/**
 * One line of the table.
 *
 * @param size bytes, the larger of what a rank sends and receives
 * @param count the count argument of the operation
 * @param type nccl-tests' name of the element type
 * @param redop nccl-tests' name of the reduction, or {@code none}
 * @param root the root, or −1
 * @param outOfPlace with send and receive buffers apart
 * @param inPlace with one buffer; null if the operation has no in-place form
 * @param iterations timed operations of each
 * @param line how far apart the processors were before and after
 * @param time when it was finished, in local time
 */
public record SizeResult(
    long size,
    long count,
    String type,
    String redop,
    int root,
    Measurement outOfPlace,
    @Nullable Measurement inPlace,
    int iterations,
    LineLatency line,
    LocalDateTime time) {}

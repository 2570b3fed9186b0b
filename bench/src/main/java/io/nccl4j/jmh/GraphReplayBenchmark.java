package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import java.util.Objects;
import org.jspecify.annotations.Nullable;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * 32 allReduces of 8 bytes between two threads: as plain operations, as one graph, or as the bare
 * exchange that both contain.
 */
@OperationsPerInvocation(GraphReplayBenchmark.OPERATIONS)
public class GraphReplayBenchmark extends HostBenchmark {
  /** Operations of one step. */
  static final int OPERATIONS = 32;

  /** Two floats. */
  private static final int COUNT = 2;

  /** What a step is. */
  public enum Way {
    /** Plain operations. */
    PLAIN,
    /** One launch of a graph. */
    GRAPH,
    /** Loads, stores and additions, without nccl4j. */
    RAW
  }

  /** What a step is. */
  @Param public Way way;

  private @Nullable TwoRanks ranks;
  private @Nullable RawExchange raw;

  /** Connects the ranks, and captures. */
  @Setup
  public void open() {
    Device.get(Backend.HOST, 0).bindThread();
    if (way == Way.RAW) {
      raw = new RawExchange(OPERATIONS);
    } else {
      ranks = new TwoRanks(COUNT, OPERATIONS, way == Way.GRAPH);
    }
  }

  /** Disconnects them. */
  @TearDown
  public void close() {
    if (raw != null) {
      raw.close();
    }
    if (ranks != null) {
      ranks.close();
    }
  }

  /** One step: all operations, waited for; returns the first sum. */
  @Benchmark
  public float step() {
    return raw == null ? Objects.requireNonNull(ranks).step() : raw.step();
  }

  /** Work in the FIFO of rank 0, in bytes. */
  long occupiedBytes() {
    return ranks == null ? 0 : ranks.occupiedBytes();
  }
}

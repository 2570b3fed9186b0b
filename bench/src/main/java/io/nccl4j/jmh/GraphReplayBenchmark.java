package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/** 32 allReduces of 8 bytes between two threads: as plain operations, or as one graph. */
public class GraphReplayBenchmark extends HostBenchmark {
  /** Operations of one step. */
  static final int OPERATIONS = 32;

  /** Whether a step is one launch of a graph. */
  @Param({"false", "true"})
  public boolean graph;

  private TwoRanks ranks;

  /** Connects the ranks, and captures. */
  @Setup
  public void open() {
    Device.get(Backend.HOST, 0).bindThread();
    ranks = new TwoRanks(2, OPERATIONS, graph);
  }

  /** Disconnects them. */
  @TearDown
  public void close() {
    ranks.close();
  }

  /** One step: all operations, waited for; returns the first sum. */
  @Benchmark
  public float step() {
    return ranks.step();
  }

  /** Work in the FIFO of rank 0, in bytes. */
  long occupiedBytes() {
    return ranks.occupiedBytes();
  }
}

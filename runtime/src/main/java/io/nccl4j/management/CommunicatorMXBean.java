package io.nccl4j.management;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorCounters;
import io.nccl4j.memory.MemoryReport;
import java.util.List;

/**
 * One rank of a communicator, {@code io.nccl4j:type=Communicator,name=…,rank=…}, from its creation
 * until it is closed, or aborted by its own process. Where a process has several of one name and
 * rank, later ones have {@code instance=2} and so on, too.
 */
public interface CommunicatorMXBean {
  /** The communicator's name in messages. */
  String getName();

  /** This rank, from 0. */
  int getRank();

  /** Number of ranks. */
  int getRankCount();

  /** Label of its backend, {@code host} or {@code cuda}. */
  String getBackend();

  /** Its device, in words. */
  String getDevice();

  /** What may be done with it; found by a look at the other ranks. */
  Communicator.State getState();

  /** Why it failed and what to do; empty if it has not failed. */
  String getFailure();

  /** The ranks where the failure began, as far as known; empty if it has not failed. */
  List<Integer> getFailedRanks();

  /** What it has submitted. */
  CommunicatorCounters getCounters();

  /** The memory it has taken, by purpose and place. */
  List<MemoryReport.Line> getMemory();

  /** The ranks of each host; empty on the cuda backend, which does not know. */
  List<List<Integer>> getHosts();

  /** What carries data between hosts; empty if there is one host. */
  String getNetwork();
}

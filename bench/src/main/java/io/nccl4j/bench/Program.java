package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.List;

/**
 * One of nccl-tests' programs: what a size means, how one operation is issued, what goes in and
 * must come out, and how bandwidth is counted. Stateless; shared by all threads.
 */
public abstract class Program {
  private final String command;
  private final String testsName;

  /**
   * A program.
   *
   * @param command name of the subcommand, for example {@code allreduce}
   * @param testsName nccl-tests' name, for example {@code all_reduce_perf}
   */
  Program(String command, String testsName) {
    this.command = command;
    this.testsName = testsName;
  }

  /** Name of the subcommand, for example {@code allreduce}. */
  public final String command() {
    return command;
  }

  /** Name of nccl-tests' program, for example {@code all_reduce_perf}. */
  public final String testsName() {
    return testsName;
  }

  /** Whether the operation reduces; if not, the redop column says {@code none}. */
  public abstract boolean reduces();

  /** Whether the operation has a root; if not, the root column says −1. */
  public boolean rooted() {
    return false;
  }

  /** Whether the operation can be in place; if not, the in-place columns say N/A. */
  public boolean inPlace() {
    return true;
  }

  /**
   * What a size means.
   *
   * @param elements the size in elements, rounded down
   * @param elementBytes 1, 2, 4 or 8
   */
  public abstract Shape shape(long elements, int elementBytes, int nranks);

  /** Issues one operation on one rank. */
  public abstract void launch(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      long count,
      DataType type,
      ReduceOp op,
      int root,
      Stream stream);

  /** The bytes that algbw counts. */
  public abstract double algorithmBytes(Shape shape, int elementBytes, int nranks);

  /** What algbw is multiplied with to give busbw. */
  public abstract double busFactor(int nranks);

  /** What a rank's send buffer holds. */
  abstract List<Block> sent(Case size, TestData data, int rank, long seed);

  /** What a rank's receive buffer must hold afterwards; what is not listed is not checked. */
  abstract List<Block> expected(Case size, TestData data, int rank, long seed);

  @Override
  public String toString() {
    return command;
  }
}

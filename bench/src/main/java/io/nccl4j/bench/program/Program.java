package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.options.Options;
import java.util.List;
import java.util.Map;

/**
 * One of nccl-tests' programs: what a size means, how one operation is issued, what goes in and
 * must come out, and how bandwidth is counted. Stateless; shared by all threads.
 */
public abstract class Program {
  private static final int UNTOUCHED_SEED = 77;

  private final String command;
  private final String testsName;
  private final String summary;

  /**
   * A program.
   *
   * @param command name of the subcommand, for example {@code allreduce}
   * @param testsName nccl-tests' name, for example {@code all_reduce_perf}
   * @param summary what the operation does, for example {@code every rank gets …}
   */
  public Program(String command, String testsName, String summary) {
    this.command = command;
    this.testsName = testsName;
    this.summary = summary;
  }

  /**
   * The program as the environment wants it; most have no variables.
   *
   * @throws io.nccl4j.InvalidArgumentException if a variable cannot be understood
   */
  public Program with(Map<String, String> environment) {
    return this;
  }

  /**
   * Checks that the program can run so.
   *
   * @param nranks ranks of the run in all processes
   * @throws io.nccl4j.InvalidArgumentException if not
   */
  public final void check(Options options, int nranks) {
    if (!options.setup().device().isNccl()) {
      DeviceKernel.of(this, options);
    }
    for (int size : options.groups(nranks)) {
      checkGroup(options, size);
    }
  }

  /** {@link #check} for the ranks of one group. */
  void checkGroup(Options options, int nranks) {}

  /** Name of the subcommand, for example {@code allreduce}. */
  public final String command() {
    return command;
  }

  /** Name of nccl-tests' program, for example {@code all_reduce_perf}. */
  public final String testsName() {
    return testsName;
  }

  /** What the operation does, in a few words without a full stop. */
  public final String summary() {
    return summary;
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

  /**
   * Whether one rank's data goes straight to another rank, as a message, not along rings or trees.
   *
   * @param root where the operation has one
   */
  public boolean sends(int from, int to, int nranks, int root) {
    return false;
  }

  /** In how many steps, each a group of its own, an operation is issued. */
  public int stages(int nranks) {
    return 1;
  }

  /** Makes one operation on one rank ready. */
  public abstract PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream);

  /** The bytes that algbw counts. */
  public double algorithmBytes(Shape shape, int elementBytes, int nranks) {
    return (double) Math.max(shape.sendCount(), shape.recvCount()) * elementBytes;
  }

  /** What algbw is multiplied with to give busbw, for at least two ranks. */
  public abstract double busFactor(int nranks);

  /** What a rank's send buffer holds. */
  public abstract List<Block> sent(Case size, TestData data, int rank, long seed);

  /** What a rank's receive buffer must hold afterwards; what is not listed is not checked. */
  public abstract List<Block> expected(Case size, TestData data, int rank, long seed);

  /** {@link #expected} where the data sent lies in the same buffer. */
  public List<Block> expectedInPlace(Case size, TestData data, int rank, long seed) {
    return expected(size, data, rank, seed);
  }

  /** Elements that are there before the operation and must stay. */
  static List<Block> untouched(Case size, long count, long seed) {
    return List.of(new Block(TestData.bits(size.type(), seed + UNTOUCHED_SEED), 0, count, true));
  }

  @Override
  public String toString() {
    return command;
  }
}

package io.nccl4j.bench.run;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.bench.machine.CompilerThreads;
import java.lang.reflect.Proxy;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import org.apache.commons.statistics.descriptive.Median;

/**
 * How long the first exchange and the first allReduce of two fresh processes take, warmed up or
 * not, and how long the same operations take when they have run very often.
 *
 * <p>One instance is one rank's part; its thread uses it.
 */
public final class FirstCall {
  /** Bytes of each message and of each reduction. */
  public static final int BYTES = 1000;

  /** A first call after a warm-up need not take less than this, in µs. */
  private static final double GOAL_MICROS = 5;

  /** What it is meant to take at most, in steady 99th percentiles. */
  private static final double GOAL_STEADY = 3;

  private static final int RANKS = 2;

  /** Calls after which the quick compiler has compiled all it will. */
  private static final int LEAST_WARM_UP = 3000;

  private static final int SAMPLES = 4000;
  private static final int REHEARSALS = 3;
  private static final int ALIGNMENTS = 5;
  private static final Duration DEADLINE = Duration.ofSeconds(60);

  /** The operations, in the order in which a process calls them. */
  public enum Kind {
    /** Each rank sends to the other one and receives from it, in a group. */
    SEND_RECV("sendrecv"),
    /** A sum of floats. */
    ALL_REDUCE("allreduce");

    private final String label;

    Kind(String label) {
      this.label = label;
    }

    /** Its name for people. */
    public String label() {
      return label;
    }
  }

  /**
   * One operation of one pair of processes, in µs; of the two ranks the longer time.
   *
   * @param first the first call of the process
   * @param median of the calls after very many others
   * @param p99 the time that 99 % of these calls keep to
   */
  public record Times(Kind operation, double first, double median, double p99) {
    /** One line, for {@link #parse}. */
    public String format() {
      return String.format(Locale.ROOT, "%s %.3f %.3f %.3f", operation.name(), first, median, p99);
    }

    /** The inverse of {@link #format}. */
    public static Times parse(String line) {
      String[] parts = line.split(" ");
      return new Times(
          Kind.valueOf(parts[0]),
          Double.parseDouble(parts[1]),
          Double.parseDouble(parts[2]),
          Double.parseDouble(parts[3]));
    }
  }

  /**
   * One operation of all pairs, in µs.
   *
   * @param pairs number of pairs of each kind
   * @param coldMedian first calls without a warm-up
   * @param coldMost the longest of them
   * @param warmMedian first calls after a warm-up
   * @param warmMost the longest of them
   * @param steadyMedian median of the pairs' medians of later calls
   * @param steadyP99 the same of their 99th percentiles
   */
  public record Summary(
      Kind operation,
      int pairs,
      double coldMedian,
      double coldMost,
      double warmMedian,
      double warmMost,
      double steadyMedian,
      double steadyP99) {
    /** What {@code warmMedian} is meant to be at most. */
    public double goal() {
      return Math.max(GOAL_MICROS, GOAL_STEADY * steadyP99);
    }

    /** Whether the warm-up did all that it is meant to do. */
    public boolean meetsGoal() {
      return warmMedian <= goal();
    }
  }

  private final Communicator communicator;
  private final Stream stream;
  private final DeviceBuffer send;
  private final DeviceBuffer recv;
  private final int peer;

  private FirstCall(
      Communicator communicator, Stream stream, DeviceBuffer send, DeviceBuffer recv) {
    this.communicator = communicator;
    this.stream = stream;
    this.send = send;
    this.recv = recv;
    this.peer = (communicator.rank() + 1) % communicator.nranks();
  }

  /** How the two ranks join. */
  public static CommunicatorConfig config() {
    return CommunicatorConfig.builder().name("first-call").operationTimeout(DEADLINE).build();
  }

  /** The plan that a program with these two operations would have. */
  public static WarmUp plan() {
    return WarmUp.builder()
        .operations(WarmUp.Operation.SEND_RECV, WarmUp.Operation.ALL_REDUCE)
        .sizes(BYTES)
        .build();
  }

  /**
   * Runs both operations as one of two ranks, which both get the same times.
   *
   * @param communicator has not been used before
   * @param warm whether to warm it up
   */
  public static List<Times> onRank(Communicator communicator, boolean warm) {
    if (communicator.nranks() != RANKS) {
      throw new IllegalArgumentException(communicator.nranks() + " ranks instead of " + RANKS);
    }
    Device device = communicator.device();
    try (Stream stream = device.newStream();
        DeviceBuffer send = device.allocate(BYTES);
        DeviceBuffer recv = device.allocate(BYTES)) {
      FirstCall caller = new FirstCall(communicator, stream, send, recv);
      caller.rehearse();
      if (warm) {
        communicator.warmUp(plan());
      }
      return caller.run();
    }
  }

  private List<Times> run() {
    long[] first = calls(communicator, stream);
    List<Times> times = new ArrayList<>();
    for (Kind operation : Kind.values()) {
      times.add(steady(operation, first[operation.ordinal()]));
    }
    return times;
  }

  /**
   * Lets the JVM link the calls below, which are the caller's own code and not nccl4j's: with a
   * communicator and a stream that do nothing.
   */
  private void rehearse() {
    ClassLoader loader = FirstCall.class.getClassLoader();
    Communicator nobody =
        (Communicator)
            Proxy.newProxyInstance(
                loader, new Class<?>[] {Communicator.class}, (proxy, method, arguments) -> null);
    Stream nowhere =
        (Stream)
            Proxy.newProxyInstance(
                loader, new Class<?>[] {Stream.class}, (proxy, method, arguments) -> null);
    for (int i = 0; i < REHEARSALS; i++) {
      calls(nobody, nowhere);
    }
  }

  /** One call of each operation, both ranks together; the times in ns. */
  private long[] calls(Communicator by, Stream on) {
    align(by, on);
    long sendRecv = sendRecv(by, on);
    align(by, on);
    long allReduce = allReduce(by, on);
    return new long[] {sendRecv, allReduce};
  }

  private Times steady(Kind operation, long first) {
    int calls = Math.max(LEAST_WARM_UP, CompilerThreads.callsToOptimize());
    for (int i = 0; i < calls; i++) {
      call(operation);
    }
    CompilerThreads.awaitIdle();
    long[] nanos = new long[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
      barrier(communicator, stream);
      nanos[i] = call(operation);
    }
    Arrays.sort(nanos);
    double[] worst = worst(first, nanos[SAMPLES / 2], nanos[SAMPLES * 99 / 100]);
    return new Times(operation, worst[0] / 1e3, worst[1] / 1e3, worst[2] / 1e3);
  }

  private long call(Kind operation) {
    return operation == Kind.SEND_RECV
        ? sendRecv(communicator, stream)
        : allReduce(communicator, stream);
  }

  private long sendRecv(Communicator by, Stream on) {
    long start = System.nanoTime();
    try (Group group = Group.start()) {
      by.send(send, BYTES, DataType.INT8, peer, on);
      by.recv(recv, BYTES, DataType.INT8, peer, on);
      group.launch();
    }
    on.synchronize();
    return System.nanoTime() - start;
  }

  private long allReduce(Communicator by, Stream on) {
    long start = System.nanoTime();
    by.allReduce(send, recv, BYTES / Float.BYTES, DataType.FLOAT32, ReduceOp.SUM, on);
    on.synchronize();
    return System.nanoTime() - start;
  }

  /**
   * Lets both ranks start together. One barrier does not: a rank that has waited for long sleeps,
   * and the other one is through before it wakes up.
   */
  private static void align(Communicator by, Stream on) {
    for (int i = 0; i < ALIGNMENTS; i++) {
      barrier(by, on);
    }
  }

  private static void barrier(Communicator by, Stream on) {
    by.barrier(on);
    on.synchronize();
  }

  /** Of each value the larger one of both ranks. */
  private double[] worst(double... own) {
    try (DeviceBuffer values = communicator.device().allocate(DataType.FLOAT64, own.length)) {
      values.copyFrom(own);
      communicator.allReduce(values, values, own.length, DataType.FLOAT64, ReduceOp.MAX, stream);
      stream.synchronize();
      return values.toDoubles();
    }
  }

  /**
   * Sums up what the pairs found.
   *
   * @param cold times of pairs without a warm-up
   * @param warm times of as many pairs with one
   */
  public static List<Summary> summarize(List<Times> cold, List<Times> warm) {
    List<Summary> summaries = new ArrayList<>();
    for (Kind operation : Kind.values()) {
      List<Times> coldOnes = cold.stream().filter(t -> t.operation() == operation).toList();
      List<Times> warmOnes = warm.stream().filter(t -> t.operation() == operation).toList();
      double[] coldFirst = coldOnes.stream().mapToDouble(Times::first).sorted().toArray();
      double[] warmFirst = warmOnes.stream().mapToDouble(Times::first).sorted().toArray();
      summaries.add(
          new Summary(
              operation,
              warmFirst.length,
              median(coldFirst),
              coldFirst[coldFirst.length - 1],
              median(warmFirst),
              warmFirst[warmFirst.length - 1],
              median(warmOnes.stream().mapToDouble(Times::median).sorted().toArray()),
              median(warmOnes.stream().mapToDouble(Times::p99).sorted().toArray())));
    }
    return summaries;
  }

  private static double median(double[] values) {
    return Median.withDefaults().evaluate(values);
  }
}

package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.WarmUp.Operation;
import io.nccl4j.internal.machine.CompilerThreads;
import io.nccl4j.internal.schedule.WarmUpCalls.Call;
import io.nccl4j.internal.spi.BackendDevice;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Consumer;

/**
 * One rank's part of a warm-up, on a stream and buffers of its own. It goes through the API as any
 * caller does: what is warm afterwards is what callers use.
 */
final class WarmUpRun {
  /** Operations in a row that are queued before they are waited for, every other time. */
  private static final int BURST = 16;

  /** Ranks that poll keep the compilers from working: after so many operations they pause. */
  private static final int OPERATIONS_TO_PAUSE = 3000;

  private static final long PAUSE_NANOS = 5_000_000;

  /**
   * The plan is run in so many parts, so that code is compiled when it has seen all operations, and
   * the compiled code is used before the end.
   */
  private static final int ROUNDS = 6;

  /**
   * Calls of each way in a part that follows: it shows whether the compilers have something to do
   * still, and links compiled code to compiled code.
   */
  private static final int PROBES = 32;

  /** Such parts at most. */
  private static final int PROBE_ROUNDS = 12;

  /**
   * How often all calls are made at the very end, one after the other and with nothing in between:
   * they and their data lie in the processor's caches then.
   */
  private static final int LAST_ROUNDS = 32;

  /** One barrier does not bring ranks together: who comes last is through before others wake up. */
  private static final int LAST_BARRIERS = 5;

  /** Calls of one fresh copy of the caller: the compilers turn to what is called more often. */
  private static final int FRESH_CALLS = 150;

  /** What compilers may work in a part that was the last one. */
  private static final long SETTLED_NANOS = 200_000;

  /** How long the compilers are waited for at most, after each part. */
  private static final long COMPILERS_NANOS = 1_000_000_000;

  private final Communicator communicator;
  private final WarmUp plan;
  private final BackendDevice device;
  private final int rank;
  private final int nranks;
  private final WarmUpCalls planned;
  private int sincePause;
  private int round;

  /** Whether the calls are made from code that has just been loaded. */
  private boolean fresh;

  private final Calls direct = new DirectCalls();
  private Calls lately = direct;
  private int freshCalls;

  WarmUpRun(Communicator communicator, WarmUp plan) {
    this.communicator = communicator;
    this.plan = plan;
    this.device = (BackendDevice) communicator.device();
    this.rank = communicator.rank();
    this.nranks = communicator.nranks();
    this.planned = new WarmUpCalls(plan, communicator);
  }

  /** Checks everything that can be refused, before any rank has begun. */
  void run() {
    if (GroupScope.isOpen()) {
      throw new InvalidUsageException(
          "warmUp: a group is open on this thread", "launch or close the group first");
    }
    for (int peer : plan.peers()) {
      if (peer < 0 || peer >= nranks) {
        throw new InvalidArgumentException(
            "warmUp: peer " + peer + " does not exist", "use 0 to " + (nranks - 1));
      }
    }
    try {
      runParts();
    } catch (InterruptedWaitException e) {
      // The other ranks wait for what comes next.
      communicator.abort();
      throw e;
    }
  }

  private void runParts() {
    try (Stream stream = device.newStream()) {
      requireSamePlan(stream);
    }
    long bytes = capacity();
    // The other ranks wait meanwhile, in an operation that has its deadline.
    long patience =
        Math.min(COMPILERS_NANOS, communicator.config().operationTimeout().toNanos() / 4);
    try (Stream stream = device.newStream();
        DeviceBuffer unsettled = device.allocate(DataType.INT32, 1)) {
      for (round = 0; round < ROUNDS; round++) {
        runAll(bytes);
        Compilers.awaitIdle(patience);
        communicator.barrier(stream);
        stream.synchronize();
      }
      // What a compiler has left to do would be done during the caller's first operations.
      boolean again = true;
      for (int i = 0; again && i < PROBE_ROUNDS; i++) {
        long before = CompilerThreads.nanos();
        runAll(bytes);
        Compilers.awaitIdle(patience);
        unsettled.copyFrom(new int[] {CompilerThreads.nanos() - before > SETTLED_NANOS ? 1 : 0});
        communicator.allReduce(unsettled, unsettled, 1, DataType.INT32, ReduceOp.MAX, stream);
        stream.synchronize();
        again = unsettled.toInts()[0] != 0;
      }
    }
    try (Stream stream = device.newStream()) {
      runLast(bytes);
      // Closing what was used took one rank longer than another. They leave together: a rank that
      // waits for long sleeps, and has cold caches when it wakes up.
      for (int i = 0; i < LAST_BARRIERS; i++) {
        communicator.barrier(stream);
        stream.synchronize();
      }
    }
  }

  private void runAll(long bytes) {
    try (DeviceBuffer send = device.allocate(bytes);
        DeviceBuffer recv = device.allocate(bytes)) {
      runOn(send, recv, plan.operations());
      if (plan.wrapped()) {
        try (DeviceBuffer wrappedSend = device.wrapLike(send);
            DeviceBuffer wrappedRecv = device.wrapLike(recv)) {
          runOn(wrappedSend, wrappedRecv, withData());
        }
      }
    }
  }

  private Set<Operation> withData() {
    Set<Operation> withData = EnumSet.copyOf(plan.operations());
    withData.remove(Operation.BARRIER);
    return withData;
  }

  /**
   * Looking after the compilers, and making streams and classes, has taken milliseconds: the caches
   * hold something else by now. Here all that takes time is done before the first call.
   */
  private void runLast(long bytes) {
    List<Consumer<Calls>> all = new ArrayList<>();
    List<ExecutableGraph> graphs = new ArrayList<>();
    try (Stream stream = device.newStream();
        DeviceBuffer send = device.allocate(bytes);
        DeviceBuffer recv = device.allocate(bytes);
        DeviceBuffer wrappedSend = plan.wrapped() ? device.wrapLike(send) : null;
        DeviceBuffer wrappedRecv = plan.wrapped() ? device.wrapLike(recv) : null) {
      clear(send, recv);
      try {
        planned.forEach(
            plan.operations(),
            (call, times) -> addLast(all, graphs, call, times, send, recv, stream));
        if (wrappedSend != null && wrappedRecv != null) {
          planned.forEach(
              withData(),
              (call, times) -> addLast(all, graphs, call, times, wrappedSend, wrappedRecv, stream));
        }
        Calls lastly = FreshCalls.make();
        communicator.barrier(stream);
        stream.synchronize();
        for (int i = 0; i < LAST_ROUNDS; i++) {
          Calls by = i % 2 == 0 ? direct : lastly;
          for (Consumer<Calls> one : all) {
            one.accept(by);
            by.synchronize(stream);
          }
        }
      } finally {
        // A loop: linking a lambda would drive out of the caches what is in them now.
        for (ExecutableGraph graph : graphs) {
          graph.close();
        }
      }
    }
  }

  private void addLast(
      List<Consumer<Calls>> all,
      List<ExecutableGraph> graphs,
      Call call,
      int times,
      DeviceBuffer send,
      DeviceBuffer recv,
      Stream stream) {
    if (times < 2 * PROBES) {
      return;
    }
    all.add(by -> call.make(by, send, recv, stream));
    if (plan.captured()) {
      try (Graph graph = capture(call, send, recv, stream)) {
        ExecutableGraph executable = graph.instantiate();
        graphs.add(executable);
        all.add(by -> by.launch(executable, stream));
      }
    }
  }

  /** Compares digests, so that ranks that differ all know it before they start. */
  private void requireSamePlan(Stream stream) {
    UUID digest = UUID.nameUUIDFromBytes(plan.toString().getBytes(StandardCharsets.UTF_8));
    try (DeviceBuffer mine = device.allocate(DataType.INT64, 2);
        DeviceBuffer all = device.allocate(DataType.INT64, 2L * nranks)) {
      mine.copyFrom(new long[] {digest.getMostSignificantBits(), digest.getLeastSignificantBits()});
      communicator.allGather(mine, all, 2, DataType.INT64, stream);
      stream.synchronize();
      long[] digests = all.toLongs();
      StringBuilder others = new StringBuilder();
      for (int k = 1; k < nranks; k++) {
        if (digests[2 * k] != digests[0] || digests[2 * k + 1] != digests[1]) {
          others.append(others.isEmpty() ? "" : ", ").append(k);
        }
      }
      if (!others.isEmpty()) {
        throw new MismatchException(
            "warmUp: rank 0 of communicator "
                + communicator.name()
                + " has another plan than ranks "
                + others
                + "; rank "
                + rank
                + " has "
                + plan,
            "pass the same plan on all ranks; nothing was run");
      }
    }
  }

  /** Enough for the largest size, and for one element a rank of the widest type. */
  private long capacity() {
    long largest = (long) nranks * Long.BYTES;
    for (long size : plan.sizes()) {
      largest = Math.max(largest, size);
    }
    return largest;
  }

  private void clear(DeviceBuffer send, DeviceBuffer recv) {
    try (Stream stream = device.newStream()) {
      stream.fill(send, (byte) 0);
      stream.fill(recv, (byte) 0);
      stream.synchronize();
    }
  }

  private void runOn(DeviceBuffer send, DeviceBuffer recv, Set<Operation> which) {
    clear(send, recv);
    planned.forEach(
        which,
        (call, times) -> {
          // A new stream each time, and the buffers in either order, as the caller's will be:
          // compiled code that has never met such a case would be thrown away at the caller's.
          try (Stream stream = device.newStream()) {
            fresh = false;
            repeat(call, times, send, recv, stream);
          }
          try (Stream stream = device.newStream()) {
            fresh = true;
            repeat(call, times, recv, send, stream);
          }
        });
  }

  private void repeat(
      Call call, int timesInAll, DeviceBuffer send, DeviceBuffer recv, Stream stream) {
    int times = times(timesInAll);
    if (times == 0) {
      return;
    }
    burst(by -> call.make(by, send, recv, stream), times, stream);
    if (!plan.captured()) {
      return;
    }
    try (Graph graph = capture(call, send, recv, stream);
        ExecutableGraph executable = graph.instantiate()) {
      burst(by -> by.launch(executable, stream), times, stream);
    }
  }

  private Graph capture(Call call, DeviceBuffer send, DeviceBuffer recv, Stream stream) {
    stream.beginCapture();
    call.make(caller(), send, recv, stream);
    return stream.endCapture();
  }

  private Calls caller() {
    return fresh ? lately : direct;
  }

  /** How many of an operation's calls, of which each way makes half, are this round's. */
  private int times(int all) {
    int half = fresh ? all / 2 : all - all / 2;
    if (round >= ROUNDS) {
      return half < PROBES ? 0 : PROBES;
    }
    return (int) ((long) half * (round + 1) / ROUNDS - (long) half * round / ROUNDS);
  }

  /** Half of the calls are waited for one by one, half in bursts: both ways are used later. */
  private void burst(Consumer<Calls> call, int times, Stream stream) {
    for (int i = 0; i < times; i++) {
      if (fresh && ++freshCalls % FRESH_CALLS == 1) {
        lately = FreshCalls.make();
      }
      Calls by = caller();
      call.accept(by);
      if (i < times / 2 || i % BURST == 0 || i == times - 1) {
        by.synchronize(stream);
      }
      if (++sincePause == OPERATIONS_TO_PAUSE) {
        sincePause = 0;
        stream.synchronize();
        LockSupport.parkNanos(PAUSE_NANOS);
      }
    }
  }
}

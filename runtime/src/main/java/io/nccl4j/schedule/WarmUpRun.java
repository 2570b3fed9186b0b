package io.nccl4j.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.MismatchException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.WarmUp;
import io.nccl4j.WarmUp.Operation;
import java.lang.foreign.Arena;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.locks.LockSupport;

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
   * still, links compiled code to compiled code, and has both in the processor's caches.
   */
  private static final int LAST = 32;

  /** Such parts at most. */
  private static final int LAST_ROUNDS = 12;

  /** Calls of one fresh copy of the caller: the compilers turn to what is called more often. */
  private static final int FRESH_CALLS = 150;

  /** What compilers may work in a part that was the last one. */
  private static final long SETTLED_NANOS = 200_000;

  /** How long the compilers are waited for at most, after each part. */
  private static final long COMPILERS_NANOS = 1_000_000_000;

  private static final boolean[] WAYS = {false, true};

  private static final Set<ReduceOp.Kind> SUM_ONLY = Set.of(ReduceOp.Kind.SUM);

  private final Communicator communicator;
  private final WarmUp plan;
  private final Device device;
  private final int rank;
  private final int nranks;
  private int sincePause;
  private int round;

  /** Whether the calls are made from code that has just been loaded. */
  private boolean fresh;

  private final Calls direct = new DirectCalls();
  private Calls lately = direct;
  private Calls calls = direct;
  private int freshCalls;

  WarmUpRun(Communicator communicator, WarmUp plan) {
    this.communicator = communicator;
    this.plan = plan;
    this.device = communicator.device();
    this.rank = communicator.rank();
    this.nranks = communicator.nranks();
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
      for (int i = 0; again && i < LAST_ROUNDS; i++) {
        long before = Compilers.nanos();
        runAll(bytes);
        Compilers.awaitIdle(patience);
        unsettled.copyFrom(new int[] {Compilers.nanos() - before > SETTLED_NANOS ? 1 : 0});
        communicator.allReduce(unsettled, unsettled, 1, DataType.INT32, ReduceOp.MAX, stream);
        stream.synchronize();
        again = unsettled.toInts()[0] != 0;
      }
    }
    // Looking after the compilers has taken milliseconds: the caches hold something else by now.
    // Twice, since what the first time links shall have been run, too.
    round++;
    runAll(bytes);
    runAll(bytes);
  }

  private void runAll(long bytes) {
    try (DeviceBuffer send = device.allocate(bytes);
        DeviceBuffer recv = device.allocate(bytes)) {
      runOn(send, recv, plan.operations());
    }
    if (plan.wrapped()) {
      // Collected when nothing refers to it any more, so that nothing waits for its end.
      Arena arena = Arena.ofAuto();
      try (DeviceBuffer send = device.wrap(arena.allocate(bytes, DataType.FLOAT64.byteSize()));
          DeviceBuffer recv = device.wrap(arena.allocate(bytes, DataType.FLOAT64.byteSize()))) {
        Set<Operation> withData = java.util.EnumSet.copyOf(plan.operations());
        withData.remove(Operation.BARRIER);
        runOn(send, recv, withData);
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

  private void runOn(DeviceBuffer send, DeviceBuffer recv, Set<Operation> which) {
    try (Stream stream = device.newStream()) {
      stream.fill(send, (byte) 0);
      stream.fill(recv, (byte) 0);
      stream.synchronize();
    }
    for (Operation operation : which) {
      if (operation == Operation.BARRIER) {
        try (Stream stream = device.newStream()) {
          for (boolean way : WAYS) {
            fresh = way;
            repeat(
                collective(operation, DataType.INT8, ReduceOp.SUM, 0, 0, send, recv, stream),
                plan.iterations(0),
                stream);
          }
        }
        continue;
      }
      for (DataType type : plan.types()) {
        for (ReduceOp.Kind kind : operation.reduces() ? plan.reductions() : SUM_ONLY) {
          for (long size : plan.sizes()) {
            // A new stream each time, and the buffers in either order, as the caller's will be:
            // compiled code that has never met such a case would be thrown away at the caller's.
            try (Stream stream = device.newStream()) {
              fresh = false;
              runOne(operation, type, reduceOp(kind), size, send, recv, stream);
            }
            try (Stream stream = device.newStream()) {
              fresh = true;
              runOne(operation, type, reduceOp(kind), size, recv, send, stream);
            }
          }
        }
      }
    }
  }

  private static ReduceOp reduceOp(ReduceOp.Kind kind) {
    return switch (kind) {
      case SUM -> ReduceOp.SUM;
      case PROD -> ReduceOp.PROD;
      case MAX -> ReduceOp.MAX;
      case MIN -> ReduceOp.MIN;
      case AVG -> ReduceOp.AVG;
      case PRE_MUL_SUM -> ReduceOp.preMulSum(2);
    };
  }

  private void runOne(
      Operation operation,
      DataType type,
      ReduceOp op,
      long size,
      DeviceBuffer send,
      DeviceBuffer recv,
      Stream stream) {
    int iterations = plan.iterations(size);
    long whole = elements(size, type);
    long block = elements(size / nranks, type);
    long blockOrNone = size == 0 ? 0 : block;
    if (operation != Operation.SEND_RECV) {
      Runnable call =
          collective(operation, type, op, size == 0 ? 0 : whole, blockOrNone, send, recv, stream);
      repeat(call, iterations, stream);
      return;
    }
    long count = size == 0 ? 0 : whole;
    for (int distance = nranks == 1 ? 0 : 1; distance < Math.max(1, nranks); distance++) {
      int to = (rank + distance) % nranks;
      int from = (rank + nranks - distance) % nranks;
      int target = areConnected(rank, to) ? to : -1;
      int source = areConnected(rank, from) ? from : -1;
      repeat(
          () -> calls.exchange(communicator, send, recv, count, type, target, source, stream),
          Math.max(1, iterations / Math.max(1, nranks - 1)),
          stream);
    }
  }

  private boolean areConnected(int one, int other) {
    return plan.peers().isEmpty() || plan.peers().contains(one) || plan.peers().contains(other);
  }

  private static long elements(long bytes, DataType type) {
    return Math.max(1, bytes / type.byteSize());
  }

  private Runnable collective(
      Operation operation,
      DataType type,
      ReduceOp op,
      long whole,
      long block,
      DeviceBuffer send,
      DeviceBuffer recv,
      Stream stream) {
    long[] counts = new long[nranks];
    long[] places = new long[nranks];
    for (int k = 0; k < nranks; k++) {
      counts[k] = block;
      places[k] = k * block;
    }
    return () ->
        calls.collective(
            communicator, operation, type, op, whole, block, counts, places, send, recv, stream);
  }

  private void repeat(Runnable call, int timesInAll, Stream stream) {
    int times = times(timesInAll);
    if (times == 0) {
      return;
    }
    burst(call, times, stream);
    if (!plan.captured()) {
      return;
    }
    stream.beginCapture();
    call.run();
    try (Graph graph = stream.endCapture();
        ExecutableGraph executable = graph.instantiate()) {
      burst(() -> calls.launch(executable, stream), times, stream);
    }
  }

  /** How many of an operation's calls, of which each way makes half, are this round's. */
  private int times(int all) {
    int half = fresh ? all / 2 : all - all / 2;
    if (round >= ROUNDS) {
      return half < LAST ? 0 : LAST;
    }
    return (int) ((long) half * (round + 1) / ROUNDS - (long) half * round / ROUNDS);
  }

  /** Half of the calls are waited for one by one, half in bursts: both ways are used later. */
  private void burst(Runnable call, int times, Stream stream) {
    for (int i = 0; i < times; i++) {
      boolean atTheEnd = round > ROUNDS && i == 0;
      if (fresh && (++freshCalls % FRESH_CALLS == 1 || atTheEnd)) {
        lately = FreshCalls.make();
      }
      calls = fresh ? lately : direct;
      call.run();
      if (i < times / 2 || i % BURST == 0 || i == times - 1) {
        calls.synchronize(stream);
      }
      if (++sincePause == OPERATIONS_TO_PAUSE) {
        sincePause = 0;
        stream.synchronize();
        LockSupport.parkNanos(PAUSE_NANOS);
      }
    }
  }
}

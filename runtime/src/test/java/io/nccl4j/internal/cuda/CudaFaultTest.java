package io.nccl4j.internal.cuda;

import static io.nccl4j.internal.cuda.StandIn.Fault.ASYNC;
import static io.nccl4j.internal.cuda.StandIn.Fault.DELAY;
import static io.nccl4j.internal.cuda.StandIn.Fault.ERROR;
import static io.nccl4j.internal.cuda.StandIn.Fault.HANG;
import static io.nccl4j.internal.cuda.StandIn.Fault.STICKY;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.params.provider.Arguments.arguments;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.cuda.CudaException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * The table of faults: which call fails how, and what the caller is told. After each row everything
 * is closed, nothing is left, and other communicators work.
 */
class CudaFaultTest {
  private static final Map<Integer, Class<? extends NcclException>> NCCL_ERRORS =
      Map.of(
          1, CudaException.class,
          2, SystemErrorException.class,
          3, InternalErrorException.class,
          4, InvalidArgumentException.class,
          5, InvalidUsageException.class,
          6, NcclException.class);

  private static final List<Integer> ASYNC_ERRORS = List.of(1, 2, 3, 6);

  /** CUDA's codes: invalid value, not initialised, invalid handle, not supported, unknown. */
  private static final Map<Integer, String> CUDA_ERRORS =
      Map.of(
          1, "CUDA_ERROR_INVALID_VALUE",
          3, "CUDA_ERROR_NOT_INITIALIZED",
          400, "CUDA_ERROR_INVALID_HANDLE",
          999, "CUDA_ERROR_UNKNOWN");

  private static final int OUT_OF_MEMORY = 2;
  private static final int ILLEGAL_ADDRESS = 700;
  private static final long SHORT_MILLIS = 150;

  /** Ranks that the faults are not for, on devices of their own. */
  private static @Nullable CudaRig others;

  private StandIn standIn = StandIn.require();

  /** Calls one operation of a rank. */
  private interface Operation {
    void run(CudaRig rig, int rank);
  }

  /** An operation and the function of NCCL that it comes to. */
  private record Call(String function, Operation operation) {
    @Override
    public String toString() {
      return function;
    }
  }

  private static final List<Call> CALLS =
      List.of(
          new Call("ncclAllReduce", CudaRig::sum),
          call(
              "ncclBroadcast",
              (c, in, out, stream) -> c.broadcast(in, out, 4, DataType.INT32, 0, stream)),
          call(
              "ncclReduce",
              (c, in, out, stream) ->
                  c.reduce(in, out, 4, DataType.INT32, ReduceOp.MAX, 0, stream)),
          call(
              "ncclAllGather",
              (c, in, out, stream) -> c.allGather(in, out, 4, DataType.INT32, stream)),
          call(
              "ncclReduceScatter",
              (c, in, out, stream) ->
                  c.reduceScatter(in, out, 4, DataType.INT32, ReduceOp.SUM, stream)),
          call(
              "ncclAlltoAll",
              (c, in, out, stream) -> c.allToAll(in, out, 4, DataType.INT32, stream)),
          call(
              "ncclGather",
              (c, in, out, stream) -> c.gather(in, out, 4, DataType.INT32, 0, stream)),
          call(
              "ncclScatter",
              (c, in, out, stream) -> c.scatter(in, out, 4, DataType.INT32, 0, stream)),
          new Call("ncclSend", CudaFaultTest::exchange),
          new Call("ncclRecv", CudaFaultTest::exchange),
          call(
              "ncclRedOpCreatePreMulSum",
              (c, in, out, stream) ->
                  c.allReduce(in, out, 4, DataType.INT32, ReduceOp.preMulSum(3), stream)));

  /** A call with the rig's buffers and stream for a rank. */
  private interface Issue {
    void on(Communicator communicator, DeviceBuffer in, DeviceBuffer out, Stream stream);
  }

  private static Call call(String function, Issue issue) {
    return new Call(
        function,
        (rig, rank) ->
            issue.on(
                rig.communicators.get(rank),
                rig.in.get(rank),
                rig.out.get(rank),
                rig.streams.get(rank)));
  }

  private static void exchange(CudaRig rig, int rank) {
    Communicator communicator = rig.communicators.get(rank);
    Stream stream = rig.streams.get(rank);
    Group.run(
        () -> {
          communicator.send(rig.in.get(rank), 4, DataType.INT32, 1 - rank, stream);
          communicator.recv(rig.out.get(rank), 4, DataType.INT32, 1 - rank, stream);
        });
  }

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
    if (others == null) {
      others = new CudaRig(6, 2, CudaRig.CONFIG);
      others.checkSums();
      CudaRig.begin();
    }
  }

  @AfterEach
  void nothingIsLeftAndOthersWork() {
    standIn.reset();
    CudaRig.requireNoLeak();
    others.checkSums();
    CudaRig.requireNoLeak();
  }

  @AfterAll
  static void closeOthers() {
    others.close();
  }

  // ---- NCCL

  static List<Arguments> ncclErrors() {
    List<Arguments> rows = new ArrayList<>();
    for (Call call : CALLS) {
      NCCL_ERRORS.keySet().stream().sorted().forEach(code -> rows.add(arguments(call, code)));
    }
    return rows;
  }

  /** The rank whose call fails gets NCCL's error, the other one hears of it. */
  @ParameterizedTest(name = "{0} returns {1}")
  @MethodSource("ncclErrors")
  void ncclReturnsError(Call call, int code) {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject(call.function + "@1", 1, ERROR, code);
      List<Throwable> thrown = runBoth(rig, call.operation);
      requireNcclError(thrown.get(1), code);
      requireText(thrown.get(1), rig.communicators.get(1).name(), "injected error " + code);
      requirePeerFailed(thrown.getFirst());
      requireRefused(rig, 0);
      requireRefused(rig, 1);
    }
  }

  static List<Arguments> asynchronousErrors() {
    List<Arguments> rows = new ArrayList<>();
    for (Call call : CALLS) {
      if (!call.function.equals("ncclRedOpCreatePreMulSum")) {
        ASYNC_ERRORS.forEach(code -> rows.add(arguments(call, code)));
      }
    }
    return rows;
  }

  /** NCCL notices in the background that something broke: who waits is told, and waits no more. */
  @ParameterizedTest(name = "{0} breaks in the background with {1}")
  @MethodSource("asynchronousErrors")
  void ncclBreaksInTheBackground(Call call, int code) {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject(call.function + "@1", 1, ASYNC, code);
      List<Throwable> thrown = runBoth(rig, call.operation);
      requireNcclError(thrown.get(1), code);
      requireText(thrown.get(1), rig.communicators.get(1).name());
      requirePeerFailed(thrown.getFirst());
    }
  }

  static List<Call> operations() {
    return CALLS.stream()
        .filter(call -> !call.function.equals("ncclRedOpCreatePreMulSum"))
        .toList();
  }

  /** The deadline ends it on both ranks, and the message says what was waited for. */
  @ParameterizedTest(name = "{0} hangs")
  @MethodSource("operations")
  void ncclHangs(Call call) {
    CommunicatorConfig config = CudaRig.config(10_000, SHORT_MILLIS, 2_000);
    try (CudaRig rig = new CudaRig(0, 2, config)) {
      standIn.inject(call.function + "@1", 1, HANG, 0);
      List<Throwable> thrown = runBoth(rig, call.operation);
      Throwable first =
          thrown.stream().filter(e -> e instanceof DeadlineException).findFirst().orElseThrow();
      requireText(
          first,
          SHORT_MILLIS + " ms",
          rig.communicators.get(1).name(),
          "#",
          "operation-timeout sets the deadline");
      // A collective may have ended on the other rank before the deadline.
      for (Throwable e : thrown) {
        assertTrue(
            e instanceof DeadlineException
                || e instanceof PeerFailedException
                || e instanceof CudaRig.Nothing,
            () -> "not " + e);
      }
    }
  }

  /** NCCL may hang if one rank groups what another does not. The stand-in hangs by injection. */
  @Test
  void groupsThatDifferAreNamed() {
    CommunicatorConfig config = CudaRig.config(10_000, SHORT_MILLIS, 2_000);
    try (CudaRig rig = new CudaRig(0, 2, config)) {
      rig.checkSums();
      standIn.inject("ncclAllReduce@1", 1, HANG, 0);
      Call call =
          new Call(
              "ncclAllReduce",
              (at, rank) -> {
                Group.run(
                    () -> {
                      at.sum(rank);
                      if (rank == 0) {
                        at.sum(rank);
                      }
                    });
                if (rank == 1) {
                  at.sum(rank);
                }
              });
      List<Throwable> thrown = runBoth(rig, call.operation);
      Throwable first =
          thrown.stream().filter(e -> e instanceof DeadlineException).findFirst().orElseThrow();
      requireText(
          first,
          "on rank 0 it is one of 2 collectives in a group",
          "on rank 1 it is called by itself",
          "NCCL needs the same groups on all ranks");
    }
  }

  /**
   * A thread in a call that waits inside NCCL can be interrupted, too: the watch of calls sees it.
   * Calls of the stand-in do not wait for peers, so that this one is but announced.
   */
  @Test
  void anInterruptLetsACallGo() throws Exception {
    try (CudaRig rig = new CudaRig(0, 2, CudaRig.CONFIG)) {
      rig.checkSums();
      CudaCommunicator communicator = (CudaCommunicator) rig.communicators.get(1);
      communicator.own().deadlines().callBegins(communicator.fifo().at(0));
      Thread.sleep(200);
      assertEquals(Communicator.State.READY, communicator.state());
      Thread.currentThread().interrupt();
      boolean failed = CudaRig.eventually(() -> communicator.own().health().failure() != null);
      assertTrue(Thread.interrupted());
      communicator.own().deadlines().callEnds();
      assertTrue(failed, "nobody saw the interrupt");
      NcclException failure = communicator.own().health().failure();
      assertInstanceOf(InterruptedWaitException.class, failure.getCause(), () -> "not " + failure);
      assertTrue(
          CudaRig.eventually(() -> rig.communicators.get(0).state() == Communicator.State.ABORTED),
          "the other rank goes on");
    }
  }

  /** What is late is not lost. */
  @ParameterizedTest(name = "{0} is late")
  @MethodSource("operations")
  void ncclIsLate(Call call) {
    try (CudaRig rig = new CudaRig(2)) {
      standIn.inject(call.function + "@1", 1, DELAY, 50);
      long start = System.nanoTime();
      for (Throwable thrown : runBoth(rig, call.operation)) {
        assertInstanceOf(CudaRig.Nothing.class, thrown);
      }
      assertTrue(System.nanoTime() - start > 45_000_000, "nothing was late");
      rig.checkSums();
    }
  }

  /** A kernel of NCCL touches what it may not: the device of one rank is lost. */
  @ParameterizedTest(name = "{0} breaks the device")
  @MethodSource("operations")
  void ncclBreaksTheDevice(Call call) {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject(call.function + "@1", 1, STICKY, ILLEGAL_ADDRESS);
      try {
        List<Throwable> thrown = runBoth(rig, call.operation);
        CudaException e = assertInstanceOf(CudaException.class, thrown.get(1));
        assertEquals(ILLEGAL_ADDRESS, e.code());
        assertEquals("CUDA_ERROR_ILLEGAL_ADDRESS", e.cudaName());
        assertTrue(e.isSticky());
        requireText(e, "restart the process");
        requirePeerFailed(thrown.getFirst());
        assertEquals(Communicator.State.FAILED, rig.communicators.get(1).state());
      } finally {
        standIn.breakDevice(1, 0);
      }
    }
  }

  /** A kernel of the program's own does so, with no operation under way. */
  @Test
  void theProgramBreaksTheDevice() {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      DeviceBuffer buffer = CudaRig.device(1).allocate(64);
      try {
        Stream stream = rig.streams.get(1);
        stream.fill(buffer, (byte) 1);
        standIn.breakDevice(1, ILLEGAL_ADDRESS);
        CudaException e = assertThrows(CudaException.class, stream::synchronize);
        assertEquals(ILLEGAL_ADDRESS, e.code());
        assertEquals(Communicator.State.FAILED, rig.communicators.get(1).state());
        NcclException told = assertThrows(NcclException.class, () -> exchange(rig, 0));
        requireText(told, "rank 1", "CUDA_ERROR_ILLEGAL_ADDRESS");
      } finally {
        standIn.breakDevice(1, 0);
        buffer.close();
      }
    }
  }

  /** The reduction made for an operation cannot be destroyed: the communicator fails. */
  @Test
  void reductionIsNotDestroyed() {
    try (CudaRig rig = new CudaRig(2)) {
      standIn.inject("ncclRedOpDestroy@1", 1, ERROR, 3);
      List<Throwable> thrown = runBoth(rig, CALLS.getLast().operation);
      requireNcclError(thrown.get(1), 3);
      requireText(thrown.get(1), "ncclRedOpDestroy", rig.communicators.get(1).name());
      // The other rank's operation may be done by then; its communicator fails in any case.
      if (!(thrown.getFirst() instanceof CudaRig.Nothing)) {
        requirePeerFailed(thrown.getFirst());
      }
      requireRefused(rig, 0);
      assertEquals(0, rig.communicators.get(1).counters().unfinishedWorks());
    }
  }

  /** Two reductions with a factor in a group: each is destroyed. */
  @Test
  void everyReductionOfAGroupIsDestroyed() {
    try (CudaRig rig = new CudaRig(2)) {
      for (int round = 0; round < 50; round++) {
        List<Throwable> thrown =
            runBoth(
                rig,
                (ranks, rank) ->
                    Group.run(
                        () -> {
                          CALLS.getLast().operation.run(ranks, rank);
                          CALLS.getLast().operation.run(ranks, rank);
                          ranks.sum(rank);
                        }));
        thrown.forEach(e -> assertInstanceOf(CudaRig.Nothing.class, e, e::toString));
      }
      assertEquals(200, standIn.calls("ncclRedOpCreatePreMulSum"));
      assertEquals(200, standIn.calls("ncclRedOpDestroy"));
    }
  }

  /** A group that cannot begin leaves nothing behind that a later operation would start. */
  @Test
  void groupDoesNotBegin() {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject("ncclGroupStart", 1, ERROR, 3);
      Throwable thrown = CudaRig.outcome(rank -> exchange(rig, 0));
      requireNcclError(thrown, 3);
      requireText(thrown, "ncclGroupStart");
      assertEquals(0, rig.communicators.get(0).counters().unfinishedWorks());
      requireRefused(rig, 0);
      rig.streams.getFirst().synchronize();
      long calls = standIn.calls("ncclSend");
      try (CudaRig other = new CudaRig(2)) {
        other.sum(0, rig.streams.getFirst());
        other.sum(1, rig.streams.get(1));
        rig.streams.forEach(Stream::synchronize);
      }
      assertEquals(calls, standIn.calls("ncclSend"), "what was given up was started later");
    }
  }

  /** One operation of a group is refused: none of them starts, and all communicators fail. */
  @Test
  void groupIsRefused() {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject("ncclAllReduce@1", 1, ERROR, 5);
      Throwable thrown =
          CudaRig.outcome(
              ignored ->
                  Group.run(
                      () -> {
                        rig.sum(0);
                        rig.sum(1);
                      }));
      requireNcclError(thrown, 5);
      requireText(thrown, "allReduce", rig.communicators.get(1).name());
      requireRefused(rig, 0);
      requireRefused(rig, 1);
      assertEquals(0, rig.communicators.get(0).counters().unfinishedWorks());
      assertEquals(0, rig.communicators.get(1).counters().unfinishedWorks());
    }
  }

  /** The end of a communicator fails: it is aborted instead. */
  @Test
  void destroyFails() {
    try (CudaRig rig = new CudaRig(2)) {
      rig.checkSums();
      standIn.inject("ncclCommDestroy@1", 1, ERROR, 1);
    }
    assertTrue(CudaRig.eventually(() -> standIn.calls("ncclCommAbort") == 1));
  }

  /** The end of a communicator takes long or for ever: close returns all the same. */
  @ParameterizedTest(name = "{0}, {1}")
  @CsvSource({"ncclCommDestroy, DELAY", "ncclCommAbort, DELAY", "ncclCommAbort, HANG"})
  void endHangs(String function, StandIn.Fault fault) {
    CudaRig rig = new CudaRig(0, 2, CudaRig.config(10_000, 20_000, 200));
    rig.checkSums();
    long before = standIn.live("comm");
    standIn.inject(function + "@1", 1, fault, 900);
    if (function.equals("ncclCommAbort")) {
      rig.communicators.forEach(Communicator::abort);
    }
    long start = System.nanoTime();
    rig.close();
    assertTrue(System.nanoTime() - start < 850_000_000L, "close waited for NCCL");
    assertEquals(before - 1, standIn.live("comm"));
  }

  // ---- CUDA

  /** Something that is done with a device. */
  private interface Work {
    void run(Device device) throws Exception;
  }

  /** Its memory stays for the life of the process, so that it is only called again for more. */
  private static final String PINNED = "cuMemHostAlloc";

  /** A function of the driver, and how to get there. */
  private record DriverCall(String function, Work work) {
    @Override
    public String toString() {
      return function;
    }
  }

  private static void withStream(Device device, java.util.function.Consumer<Stream> use) {
    try (Stream stream = device.newStream()) {
      use.accept(stream);
      stream.synchronize();
    }
  }

  private static void capture(Device device, java.util.function.Consumer<Graph> use) {
    withStream(
        device,
        stream -> {
          try (DeviceBuffer buffer = device.allocate(64)) {
            stream.beginCapture();
            stream.fill(buffer, (byte) 1);
            try (Graph graph = stream.endCapture()) {
              use.accept(graph);
            }
          }
        });
  }

  private static final List<DriverCall> DRIVER_CALLS =
      List.of(
          new DriverCall("cuMemCreate", device -> device.allocate(64 << 20).close()),
          new DriverCall("cuMemAddressReserve", device -> device.allocate(64 << 20).close()),
          new DriverCall("cuMemMap", device -> device.allocate(64 << 20).close()),
          new DriverCall("cuMemSetAccess", device -> device.allocate(64 << 20).close()),
          new DriverCall(PINNED, device -> device.allocatePinned(8 << 20).close()),
          new DriverCall("cuStreamCreate", device -> device.newStream().close()),
          new DriverCall("cuEventCreate", device -> device.newEvent().close()),
          new DriverCall("cuCtxPushCurrent_v2", device -> device.newStream().close()),
          new DriverCall(
              "cuEventRecord",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (Event event = device.newEvent()) {
                          stream.record(event);
                        }
                      })),
          new DriverCall(
              "cuEventQuery",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (Event event = device.newEvent()) {
                          stream.record(event);
                          event.synchronize();
                        }
                      })),
          new DriverCall(
              "cuEventElapsedTime",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (Event event = device.newEvent()) {
                          stream.record(event);
                          event.synchronize();
                          event.elapsedSince(event);
                        }
                      })),
          new DriverCall(
              "cuStreamWaitEvent",
              device ->
                  withStream(
                      device,
                      other -> {
                        try (Event event = device.newEvent();
                            Stream stream = device.newStream()) {
                          other.record(event);
                          stream.waitFor(event);
                        }
                      })),
          new DriverCall(
              "cuMemsetD8Async",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (DeviceBuffer buffer = device.allocate(64)) {
                          stream.fill(buffer, (byte) 1);
                          stream.synchronize();
                        }
                      })),
          new DriverCall(
              "cuMemcpyAsync",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (DeviceBuffer buffer = device.allocate(64)) {
                          stream.copy(buffer.slice(0, 32), buffer.slice(32, 32));
                          stream.synchronize();
                        }
                      })),
          new DriverCall(
              "cuMemcpyHtoDAsync_v2",
              device -> {
                try (DeviceBuffer buffer = device.allocate(64)) {
                  buffer.copyFrom(new int[16]);
                }
              }),
          new DriverCall(
              "cuMemcpyDtoHAsync_v2",
              device ->
                  withStream(
                      device,
                      stream -> {
                        try (DeviceBuffer buffer = device.allocate(64);
                            PinnedBuffer pinned = device.allocatePinned(64)) {
                          stream.copy(pinned, buffer);
                          stream.synchronize();
                        }
                      })),
          new DriverCall("cuStreamBeginCapture_v2", device -> capture(device, graph -> {})),
          new DriverCall(
              "cuGraphInstantiateWithFlags",
              device -> capture(device, graph -> graph.instantiate().close())),
          new DriverCall(
              "cuGraphLaunch",
              device ->
                  capture(
                      device,
                      graph ->
                          withStream(
                              device,
                              stream -> {
                                try (ExecutableGraph executable = graph.instantiate()) {
                                  executable.launch(stream);
                                }
                              }))));

  static List<Arguments> driverErrors() {
    List<Arguments> rows = new ArrayList<>();
    for (DriverCall call : DRIVER_CALLS) {
      CUDA_ERRORS.keySet().stream().sorted().forEach(code -> rows.add(arguments(call, code)));
    }
    return rows;
  }

  @ParameterizedTest(name = "{0} returns {1}")
  @MethodSource("driverErrors")
  void driverReturnsError(DriverCall call, int code) {
    standIn.inject(call.function, 1, ERROR, code);
    CudaException e =
        assertInstanceOf(
            CudaException.class, CudaRig.outcome(ignored -> call.work.run(CudaRig.device(3))));
    assertEquals(code, e.code());
    assertEquals(CUDA_ERRORS.get(code), e.cudaName());
    assertEquals(NcclException.Result.UNHANDLED_CUDA_ERROR, e.result());
    assertFalse(e.isSticky());
    requireText(e, plain(call.function), CUDA_ERRORS.getOrDefault(code, "?"), "(" + code + ")");
    assertTrue(standIn.calls(call.function) > 0);
  }

  static List<DriverCall> driverCalls() {
    return DRIVER_CALLS;
  }

  static List<DriverCall> repeatableCalls() {
    return DRIVER_CALLS.stream().filter(call -> !call.function.equals(PINNED)).toList();
  }

  @ParameterizedTest(name = "{0} finds no memory")
  @MethodSource("driverCalls")
  void driverIsOutOfMemory(DriverCall call) {
    standIn.inject(call.function, 0, ERROR, OUT_OF_MEMORY);
    SystemErrorException e =
        assertInstanceOf(
            SystemErrorException.class,
            CudaRig.outcome(
                ignored -> {
                  try {
                    call.work.run(CudaRig.device(3));
                  } finally {
                    standIn.reset();
                  }
                }));
    assertEquals(NcclException.Result.SYSTEM_ERROR, e.result());
    requireText(e, "allocate less");
    if (call.function.equals("cuMemCreate")) {
      requireText(e, "bytes are free", "cuda device 3", Long.toString(64 << 20));
    } else if (call.function.equals(PINNED)) {
      requireText(e, "host memory");
    } else {
      requireText(e, plain(call.function));
    }
  }

  /** A call that blocks for a while is waited for. */
  @ParameterizedTest(name = "{0} is slow")
  @MethodSource("repeatableCalls")
  void driverIsSlow(DriverCall call) {
    standIn.inject(call.function, 1, DELAY, 20);
    long start = System.nanoTime();
    Throwable thrown = CudaRig.outcome(ignored -> call.work.run(CudaRig.device(3)));
    assertInstanceOf(CudaRig.Nothing.class, thrown, thrown::toString);
    assertTrue(System.nanoTime() - start > 19_000_000, call.function + " was not called");
  }

  /** The context is lost before the call: it says so, and its device alone is lost. */
  @ParameterizedTest(name = "{0} after the context was lost")
  @MethodSource("repeatableCalls")
  void contextIsLost(DriverCall call) {
    Device device = CudaRig.device(3);
    standIn.inject(call.function, 1, STICKY, ILLEGAL_ADDRESS);
    Throwable thrown;
    try {
      thrown = CudaRig.outcome(ignored -> call.work.run(device));
      try (CudaRig others = new CudaRig(4, 2, CudaRig.CONFIG)) {
        others.checkSums();
      }
    } finally {
      standIn.breakDevice(3, 0);
    }
    if (thrown instanceof CudaRig.Nothing) {
      // A call without need of a context.
      return;
    }
    CudaException e = assertInstanceOf(CudaException.class, thrown);
    assertEquals(ILLEGAL_ADDRESS, e.code());
    assertTrue(e.isSticky());
    requireText(e, "restart the process");
  }

  /** A mark of a new stream cannot be made, whichever: the others and the stream are destroyed. */
  @ParameterizedTest(name = "mark {0}")
  @ValueSource(ints = {1, 2, 16})
  void streamWithoutMarks(int nth) {
    standIn.inject("cuEventCreate", nth, ERROR, 999);
    assertThrows(CudaException.class, () -> CudaRig.device(3).newStream().close());
  }

  /** One destruction fails: everything else is destroyed all the same. */
  @Test
  void markIsNotDestroyed() {
    Stream stream = CudaRig.device(3).newStream();
    long events = standIn.live("event");
    standIn.inject("cuEventDestroy_v2", 2, ERROR, 999);
    assertThrows(CudaException.class, stream::close);
    assertEquals(events - 15, standIn.live("event"));
    // The one that refused stays for ever; it is no leak of ours.
    CudaRig.begin();
  }

  @Test
  void chunkIsNotUnmapped() {
    DeviceBuffer buffer = CudaRig.device(3).allocate(64 << 20);
    standIn.inject("cuMemAddressFree", 1, ERROR, 999);
    long handles = standIn.live("handle");
    CudaException e = assertThrows(CudaException.class, buffer::close);
    requireText(e, "cuMemAddressFree");
    assertEquals(handles - 1, standIn.live("handle"));
    CudaRig.begin();
  }

  // ---- what messages and states are like

  private static String plain(String function) {
    return function.replace("_v2", "").replace("WithFlags", "");
  }

  private static List<Throwable> runBoth(CudaRig rig, Operation operation) {
    return CudaRig.outcomes(
        2,
        rank -> {
          operation.run(rig, rank);
          rig.streams.get(rank).synchronize();
        });
  }

  private static void requireNcclError(Throwable thrown, int code) {
    NcclException e = assertInstanceOf(NCCL_ERRORS.getOrDefault(code, NcclException.class), thrown);
    assertEquals(NcclException.Result.values()[code], e.result());
    requireText(e, "(" + code + ")", "nccl");
    assertFalse(e.remedy().isEmpty(), () -> "no remedy: " + e.getMessage());
  }

  private static void requirePeerFailed(Throwable thrown) {
    PeerFailedException e = assertInstanceOf(PeerFailedException.class, thrown);
    assertEquals(1, e.rank());
    requireText(e, "rank 1 failed");
    // A call after the failure has a remedy of its own.
    requireText(e.getCause() instanceof PeerFailedException first ? first : e, "check that rank");
  }

  private static void requireText(Throwable thrown, String... words) {
    for (String word : words) {
      assertTrue(
          String.valueOf(thrown.getMessage()).contains(word),
          () -> "'" + word + "' is not in: " + thrown.getMessage());
    }
  }

  private static void requireRefused(CudaRig rig, int rank) {
    assertEquals(Communicator.State.FAILED, rig.communicators.get(rank).state());
    NcclException e = assertThrows(NcclException.class, () -> refusal(rig, rank));
    assertSame(rig.communicators.get(rank).failure().orElseThrow(), e.getCause());
    assertSame(e.getCause().getClass(), e.getClass());
    requireText(e, "has failed", "create a new one");
  }

  /** On a new stream, since a stream with failed work has an error of its own. */
  private static void refusal(CudaRig rig, int rank) {
    try (Stream stream = rig.communicators.get(rank).device().newStream()) {
      rig.communicators
          .get(rank)
          .allReduce(rig.in.get(rank), rig.out.get(rank), 1, DataType.INT32, ReduceOp.SUM, stream);
    }
  }
}

package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryReport;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.regex.Pattern;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.MethodSource;

/** What is refused, with which exception and which words; everything stays usable afterwards. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class BadInputTest {
  private static final int COUNT = 16;
  private static final int SIZE = 4;

  /** Does something wrong. */
  private interface Wrong {
    void run() throws Exception;
  }

  /**
   * One wrong call.
   *
   * @param words what the message must contain, each a regular expression
   */
  private record Row(
      String name, List<Class<? extends Exception>> types, List<String> words, Wrong call) {
    @Override
    public String toString() {
      return name;
    }
  }

  private static Ranks ranks;
  private static Stream closedStream;
  private static DeviceBuffer closedBuffer;
  private static DeviceBuffer sliceOfClosed;
  private static DeviceBuffer elsewhere;
  private static Communicators closedCommunicators;

  @BeforeAll
  static void open() {
    ranks = new Ranks(2);
    Device device = ranks.get(0).device();
    closedStream = device.newStream();
    closedStream.close();
    closedBuffer = device.allocate(Ranks.BYTES);
    sliceOfClosed = closedBuffer.slice(0, Ranks.BYTES / 2);
    closedBuffer.close();
    // With one GPU there is no other device to be on.
    elsewhere =
        TestBackend.device(1) == device ? null : TestBackend.device(1).allocate(Ranks.BYTES);
    closedCommunicators = TestBackend.communicators(1);
    closedCommunicators.close();
  }

  @AfterAll
  static void close() {
    if (elsewhere != null) {
      elsewhere.close();
    }
    if (ranks != null) {
      ranks.close();
    }
  }

  // -- operations

  /** The arguments of any operation on rank 0 of 2, correct to begin with. */
  private static final class Arguments {
    DeviceBuffer send = ranks.in.get(0).slice(0, 4 * COUNT * SIZE);
    DeviceBuffer recv = ranks.out.get(0).slice(0, 4 * COUNT * SIZE);
    long count = COUNT;
    DataType type = DataType.FLOAT32;
    ReduceOp op = ReduceOp.SUM;
    int root = 0;
    int peer = 1;
    Stream stream = ranks.streams.get(0);
    long[] sendCounts = {COUNT, COUNT};
    long[] sendDisplacements = {0, COUNT};
    long[] recvCounts = {COUNT, COUNT};
    long[] recvDisplacements = {0, COUNT};
  }

  /**
   * Which arguments an operation has; the upper case letters are buffers of one block for each
   * rank.
   */
  private enum Operation {
    ALL_REDUCE("s r c t o"),
    BROADCAST("s r c t root"),
    REDUCE("s r c t o root"),
    ALL_GATHER("s R sendCount t"),
    REDUCE_SCATTER("S r recvCount t o"),
    ALL_TO_ALL("S R c t"),
    GATHER("s R sendCount t root"),
    SCATTER("S r recvCount t root"),
    ALL_GATHER_V("s R t recvCounts recvDisplacements"),
    REDUCE_SCATTER_V("S r t o recvCounts"),
    ALL_TO_ALL_V("S R t sendCounts sendDisplacements recvCounts recvDisplacements"),
    GATHER_V("s R sendCount t root recvCounts recvDisplacements"),
    SCATTER_V("S r recvCount t root sendCounts sendDisplacements"),
    SEND("s c t peer"),
    RECV("r c t peer"),
    BARRIER("");

    final List<String> parameters;

    Operation(String parameters) {
      this.parameters = Arrays.asList(parameters.split(" "));
    }

    boolean has(String parameter) {
      return parameters.contains(parameter);
    }

    boolean sends() {
      return has("s") || has("S");
    }

    boolean receives() {
      return has("r") || has("R");
    }

    boolean counts() {
      return has("c") || has("sendCount") || has("recvCount");
    }

    void call(Communicator c, Arguments a) {
      switch (this) {
        case ALL_REDUCE -> c.allReduce(a.send, a.recv, a.count, a.type, a.op, a.stream);
        case BROADCAST -> c.broadcast(a.send, a.recv, a.count, a.type, a.root, a.stream);
        case REDUCE -> c.reduce(a.send, a.recv, a.count, a.type, a.op, a.root, a.stream);
        case ALL_GATHER -> c.allGather(a.send, a.recv, a.count, a.type, a.stream);
        case REDUCE_SCATTER -> c.reduceScatter(a.send, a.recv, a.count, a.type, a.op, a.stream);
        case ALL_TO_ALL -> c.allToAll(a.send, a.recv, a.count, a.type, a.stream);
        case GATHER -> c.gather(a.send, a.recv, a.count, a.type, a.root, a.stream);
        case SCATTER -> c.scatter(a.send, a.recv, a.count, a.type, a.root, a.stream);
        case ALL_GATHER_V ->
            c.allGatherV(a.send, a.recv, a.recvCounts, a.recvDisplacements, a.type, a.stream);
        case REDUCE_SCATTER_V ->
            c.reduceScatterV(a.send, a.recv, a.recvCounts, a.type, a.op, a.stream);
        case ALL_TO_ALL_V ->
            c.allToAllV(
                a.send,
                a.sendCounts,
                a.sendDisplacements,
                a.recv,
                a.recvCounts,
                a.recvDisplacements,
                a.type,
                a.stream);
        case GATHER_V ->
            c.gatherV(
                a.send,
                a.count,
                a.recv,
                a.recvCounts,
                a.recvDisplacements,
                a.type,
                a.root,
                a.stream);
        case SCATTER_V ->
            c.scatterV(
                a.send,
                a.sendCounts,
                a.sendDisplacements,
                a.recv,
                a.count,
                a.type,
                a.root,
                a.stream);
        case SEND -> c.send(a.send, a.count, a.type, a.peer, a.stream);
        case RECV -> c.recv(a.recv, a.count, a.type, a.peer, a.stream);
        case BARRIER -> c.barrier(a.stream);
      }
    }
  }

  /** Spoils one argument. */
  private interface Spoiling {
    void of(Arguments arguments);
  }

  /** Collects rows. */
  private static final class Table {
    final List<Row> rows = new ArrayList<>();

    void add(String name, Class<? extends Exception> type, Wrong call, String... words) {
      rows.add(new Row(name, List.of(type), List.of(words), call));
    }

    void argument(Operation operation, String what, Spoiling spoiling, String... words) {
      add(
          operation + ": " + what,
          InvalidArgumentException.class,
          spoiled(operation, spoiling),
          words);
    }

    void closed(Operation operation, String what, Spoiling spoiling, String... words) {
      closed(operation + ": " + what, spoiled(operation, spoiling), words);
    }

    /** For objects that are closed: both exceptions for wrong calls fit. */
    void closed(String name, Wrong call, String... words) {
      rows.add(
          new Row(
              name,
              List.of(InvalidArgumentException.class, InvalidUsageException.class),
              List.of(words),
              call));
    }
  }

  private static Wrong spoiled(Operation operation, Spoiling spoiling) {
    return () -> {
      Arguments arguments = new Arguments();
      spoiling.of(arguments);
      operation.call(ranks.get(0), arguments);
    };
  }

  static List<Row> operations() {
    Table table = new Table();
    for (Operation operation : Operation.values()) {
      table.argument(operation, "stream is null", a -> a.stream = null, "stream");
      table.argument(operation, "foreign stream", a -> a.stream = foreign(Stream.class), "stream");
      table.closed(operation, "closed stream", a -> a.stream = closedStream, "stream", "closed");
      table.closed(
          operation + ": closed communicator",
          () -> operation.call(closedCommunicators.get(0), new Arguments()),
          "communicator",
          "closed");
      if (operation.has("t")) {
        table.argument(operation, "type is null", a -> a.type = null, "type");
      }
      if (operation.has("root")) {
        table.argument(operation, "root -1", a -> a.root = -1, "root", "-1");
        table.argument(operation, "root 2", a -> a.root = 2, "root", "2");
      }
      if (operation.has("peer")) {
        table.argument(operation, "peer -1", a -> a.peer = -1, "peer", "-1");
        table.argument(operation, "peer 2", a -> a.peer = 2, "peer", "2");
      }
      if (operation.has("o")) {
        addReductions(table, operation);
      }
      if (operation.sends()) {
        addBuffers(table, operation, "send", operation.has("S") ? 2 : 1, (a, b) -> a.send = b);
      }
      if (operation.receives()) {
        addBuffers(table, operation, "recv", operation.has("R") ? 2 : 1, (a, b) -> a.recv = b);
        table.argument(
            operation, "recv read-only", a -> a.recv = readOnly(), "recv|receive", "read.only");
      }
      if (operation.counts()) {
        addCounts(table, operation);
      }
      if (operation.sends() && operation.receives()) {
        addOverlaps(table, operation);
      }
      addArrays(table, operation);
    }
    return table.rows;
  }

  private static void addReductions(Table table, Operation operation) {
    table.argument(operation, "op is null", a -> a.op = null, "\\bop\\b|reduction");
    table.argument(
        operation,
        "scalar too small",
        a -> a.op = ReduceOp.preMulSum(ranks.in.get(0).slice(0, 3)),
        "scalar");
    table.closed(
        operation,
        "scalar closed",
        a -> a.op = ReduceOp.preMulSum(closedBuffer),
        "scalar",
        "closed");
    if (elsewhere != null) {
      table.argument(
          operation,
          "scalar on another device",
          a -> a.op = ReduceOp.preMulSum(elsewhere),
          "scalar",
          "device");
    }
    table.argument(
        operation,
        "scalar no integer",
        a -> {
          a.type = DataType.INT32;
          a.op = ReduceOp.preMulSum(0.5);
        },
        "scalar",
        "0\\.5");
    table.argument(
        operation,
        "scalar beyond the type",
        a -> {
          a.type = DataType.INT32;
          a.op = ReduceOp.preMulSum(1L << 31);
        },
        "scalar");
    table.argument(
        operation,
        "scalar beyond all types",
        a -> {
          a.type = DataType.INT32;
          a.op = ReduceOp.preMulSum(1e30);
        },
        "scalar");
    table.argument(
        operation,
        "scalar misaligned",
        a -> a.op = ReduceOp.preMulSum(ranks.in.get(0).slice(8193, 8)),
        "scalar",
        "align|multiple");
  }

  /** Sets a buffer. */
  private interface Setter {
    void set(Arguments arguments, DeviceBuffer buffer);
  }

  /** What both backends can reach, but may not be written to. */
  @SuppressWarnings("restricted")
  private static DeviceBuffer readOnly() {
    DeviceBuffer all = ranks.out.get(0);
    MemorySegment memory = MemorySegment.ofAddress(all.address()).reinterpret(all.byteSize());
    return all.device().wrap(memory.asReadOnly());
  }

  private static void addBuffers(
      Table table, Operation operation, String name, int blocks, Setter setter) {
    String word = name.equals("send") ? name : "recv|receive";
    int needed = blocks * COUNT * SIZE;
    DeviceBuffer whole = name.equals("send") ? ranks.in.get(0) : ranks.out.get(0);
    table.argument(operation, name + " is null", a -> setter.set(a, null), word);
    table.argument(
        operation,
        name + " one byte too small",
        a -> setter.set(a, whole.slice(0, needed - 1)),
        word,
        Integer.toString(needed - 1));
    table.argument(
        operation, name + " empty", a -> setter.set(a, whole.slice(0, 0)), word, "\\b0\\b");
    table.closed(operation, name + " closed", a -> setter.set(a, closedBuffer), word, "closed");
    table.closed(
        operation, name + " slice of closed", a -> setter.set(a, sliceOfClosed), word, "closed");
    if (elsewhere != null) {
      table.argument(
          operation, name + " on another device", a -> setter.set(a, elsewhere), word, "device");
    }
    table.argument(
        operation,
        name + " misaligned",
        a -> setter.set(a, whole.slice(4098, 4096)),
        word,
        "align|multiple");
    table.argument(
        operation, name + " foreign", a -> setter.set(a, foreign(DeviceBuffer.class)), word);
  }

  private static void addCounts(Table table, Operation operation) {
    String name = "count";
    table.argument(operation, "count -1", a -> a.count = -1, name, "-1");
    table.argument(
        operation, "lowest count", a -> a.count = Long.MIN_VALUE, name, "" + Long.MIN_VALUE);
    // Each of these overflows to a small or negative number of bytes somewhere.
    for (long count : new long[] {1L << 62, 1L << 61, (1L << 62) + 4, Long.MAX_VALUE}) {
      table.argument(operation, "count " + count, a -> a.count = count, "" + count);
    }
    table.argument(
        operation,
        "bytes beyond a long for all ranks",
        a -> {
          a.type = DataType.INT8;
          a.count = Long.MAX_VALUE / 2 + 1;
        },
        "" + (Long.MAX_VALUE / 2 + 1));
  }

  private static void addOverlaps(Table table, Operation operation) {
    table.argument(
        operation,
        "ranges overlap by one element",
        a -> {
          boolean sendIsOneBlock = operation.has("s");
          a.send = ranks.in.get(0).slice(4096);
          int length = (sendIsOneBlock ? 1 : 2) * COUNT * SIZE;
          a.recv = ranks.in.get(0).slice(4096 + length - SIZE);
        },
        "overlap|in.place");
    table.argument(
        operation,
        "shifted by one element",
        a -> {
          a.send = ranks.in.get(0).slice(4096);
          a.recv = ranks.in.get(0).slice(4096 + SIZE);
        },
        "overlap|in.place");
    if (operation == Operation.ALL_TO_ALL || operation == Operation.ALL_TO_ALL_V) {
      table.argument(operation, "in place", a -> a.recv = a.send, "overlap|in.place");
    } else if (operation.has("S") || operation.has("R")) {
      table.argument(
          operation,
          "in place at another rank's block",
          a -> {
            DeviceBuffer block = ranks.in.get(0).slice(COUNT * SIZE, 2 * COUNT * SIZE);
            if (operation.has("S")) {
              a.send = ranks.in.get(0);
              a.recv = block;
            } else {
              a.recv = ranks.in.get(0);
              a.send = block;
            }
          },
          "overlap|in.place");
    }
  }

  private static void addArrays(Table table, Operation operation) {
    boolean ofSends = operation.has("sendCounts");
    boolean ofRecvs = operation.has("recvCounts");
    if (ofSends) {
      addArray(table, operation, "sendCounts", (a, x) -> a.sendCounts = x);
      addArray(table, operation, "sendDisplacements", (a, x) -> a.sendDisplacements = x);
      table.argument(
          operation,
          "last send block ends behind send",
          a -> a.send = a.send.slice(0, 2 * COUNT * SIZE - SIZE),
          "send");
    }
    if (ofRecvs) {
      addArray(table, operation, "recvCounts", (a, x) -> a.recvCounts = x);
    }
    if (operation.has("recvDisplacements")) {
      addArray(table, operation, "recvDisplacements", (a, x) -> a.recvDisplacements = x);
      table.argument(
          operation,
          "received blocks overlap",
          a -> a.recvDisplacements = new long[] {0, COUNT - 1},
          "overlap");
      table.argument(
          operation,
          "received blocks at one place",
          a -> a.recvDisplacements = new long[] {3, 3},
          "overlap");
      table.argument(
          operation,
          "received block behind recv",
          a -> a.recvDisplacements = new long[] {0, 3 * COUNT + 1},
          "recv|receive");
    }
    if (operation == Operation.GATHER_V) {
      table.argument(
          operation,
          "own counts differ",
          a -> a.count = COUNT - 1,
          "sendCount",
          "recvCounts",
          "15",
          "16");
    }
    if (operation == Operation.SCATTER_V) {
      table.argument(
          operation,
          "own counts differ",
          a -> a.count = COUNT - 1,
          "recvCount",
          "sendCounts",
          "15",
          "16");
    }
  }

  /** Sets an array. */
  private interface ArraySetter {
    void set(Arguments arguments, long[] array);
  }

  private static void addArray(Table table, Operation operation, String name, ArraySetter setter) {
    long huge = Long.MAX_VALUE;
    String side = name.startsWith("send") ? "send" : "recv|receive";
    table.argument(operation, name + " is null", a -> setter.set(a, null), name);
    table.argument(operation, name + " too short", a -> setter.set(a, new long[1]), name, "1", "2");
    table.argument(operation, name + " too long", a -> setter.set(a, new long[3]), name, "3", "2");
    table.argument(
        operation, name + " negative", a -> setter.set(a, new long[] {COUNT, -7}), name, "-7");
    table.argument(
        operation, name + " overflow", a -> setter.set(a, new long[] {COUNT, huge}), side);
    table.argument(
        operation,
        name + " overflow in bytes",
        a -> setter.set(a, new long[] {COUNT, 1L << 62}),
        side);
    if (name.equals("recvCounts") && operation == Operation.REDUCE_SCATTER_V) {
      table.argument(
          operation, "sum overflows", a -> setter.set(a, new long[] {huge, huge}), "recv|send");
    }
  }

  /** Another backend's object, as far as this one can tell. */
  private static <T> T foreign(Class<T> type) {
    return type.cast(
        Proxy.newProxyInstance(
            type.getClassLoader(),
            new Class<?>[] {type},
            (proxy, method, arguments) ->
                switch (method.getName()) {
                  case "byteSize" -> (long) Ranks.BYTES;
                  case "address" -> 1L << 40;
                  case "isClosed", "isReadOnly" -> false;
                  case "device" -> ranks.get(0).device();
                  case "toString" -> "foreign " + type.getSimpleName();
                  case "hashCode" -> 1;
                  case "equals" -> proxy == arguments[0];
                  default -> null;
                }));
  }

  // -- everything else

  @SuppressWarnings("resource")
  static List<Row> objects() {
    Table table = new Table();
    Class<InvalidArgumentException> argument = InvalidArgumentException.class;
    Class<InvalidUsageException> usage = InvalidUsageException.class;
    Backend backend = TestBackend.BACKEND;
    Device device = ranks.get(0).device();
    DeviceBuffer buffer = ranks.in.get(0);
    Stream stream = ranks.streams.get(0);

    table.add("device -1", argument, () -> Device.get(backend, -1), "-1");
    table.add("device 1024", argument, () -> Device.get(backend, 1024), "1024");
    table.add("2000 ranks", argument, () -> Communicator.initAll(backend, 2000), "nranks is 2000");
    table.add("device of null", argument, () -> Device.get(null, 0), "backend");
    table.add("devices of null", argument, () -> Device.all(null), "backend");
    table.add("unknown backend", argument, () -> Backend.ofLabel("gpu"), "gpu", "auto", "host");
    table.add("unknown type", argument, () -> DataType.ofLabel("fp16"), "fp16", "half", "f8e5m2");
    table.add("unknown type of a width", argument, () -> DataType.ofLabel("float128"), "float32");
    table.add("unknown op", argument, () -> ReduceOp.ofLabel("mulsum"), "mulsum", "avg", "sum");

    table.add("allocate -1", argument, () -> device.allocate(-1), "-1");
    table.add("allocate lowest", argument, () -> device.allocate(Long.MIN_VALUE), "bytes|size");
    table.add("allocate -1 elements", argument, () -> device.allocate(DataType.INT8, -1), "-1");
    table.add(
        "allocate too many elements",
        argument,
        () -> device.allocate(DataType.FLOAT64, 1L << 60),
        "double",
        "" + (1L << 60));
    table.add(
        "allocate all there is", SystemErrorException.class, () -> device.allocate(Long.MAX_VALUE));
    table.add(
        "allocate 2^60",
        SystemErrorException.class,
        () -> device.allocate(1L << 60),
        "byte|memory|B\\b");
    table.add("allocate elements of null", argument, () -> device.allocate(null, 4), "type");
    table.add("allocatePinned -1", argument, () -> device.allocatePinned(-1), "-1");

    table.add(
        "survivors of a communicator that has not failed",
        usage,
        () -> ranks.get(0).survivors(Duration.ZERO),
        backend == Backend.HOST ? "has not failed" : "NCCL");
    table.add("wrap null", argument, () -> device.wrap((MemorySegment) null), "segment");
    table.add("wrap heap", argument, () -> device.wrap(MemorySegment.ofArray(new int[4])), "heap");
    table.add(
        "copyFrom to read-only", argument, () -> readOnly().copyFrom(new int[1]), "read.only");
    table.add("copy to read-only", argument, () -> stream.copy(readOnly(), buffer), "read.only");
    table.add("fill read-only", argument, () -> stream.fill(readOnly(), (byte) 1), "read.only");
    table.add(
        "fill part of read-only",
        argument,
        () -> stream.fill(readOnly().slice(8), (byte) 1),
        "read.only");
    if (backend == Backend.HOST) {
      table.add("host as GPU", usage, () -> CudaDevice.of(device), "host backend", "Backend.CUDA");
    }
    table.add("null as GPU", argument, () -> CudaDevice.of(null), "device");
    table.add("report of null", argument, () -> MemoryReport.of((Device) null), "device");
    table.add(
        "report of a foreign device",
        argument,
        () -> MemoryReport.of(foreign(Device.class)),
        "foreign Device",
        "Device.get");
    table.add(
        "report of a foreign communicator",
        argument,
        () -> MemoryReport.of(foreign(Communicator.class)),
        "foreign Communicator");
    table.add(
        "pool of a foreign device",
        argument,
        () -> MemoryPool.create(foreign(Device.class)),
        "foreign Device");
    table.add(
        "wrap confined",
        argument,
        () -> {
          try (Arena arena = Arena.ofConfined()) {
            device.wrap(arena.allocate(64));
          }
        },
        "confined");
    table.closed(
        "wrap dead segment",
        () -> {
          MemorySegment dead;
          try (Arena arena = Arena.ofShared()) {
            dead = arena.allocate(64);
          }
          device.wrap(dead);
        },
        "segment");

    table.add("slice before", argument, () -> buffer.slice(-1, 4), "-1");
    table.add("slice negative", argument, () -> buffer.slice(4, -1), "-1");
    table.add("slice behind", argument, () -> buffer.slice(1, Ranks.BYTES), "" + Ranks.BYTES);
    table.add(
        "slice offset behind",
        argument,
        () -> buffer.slice(Ranks.BYTES + 1),
        "" + (Ranks.BYTES + 1));
    table.add(
        "slice overflow", argument, () -> buffer.slice(8, Long.MAX_VALUE), "" + Long.MAX_VALUE);
    table.closed("slice closed", () -> closedBuffer.slice(0, 4), "closed");

    table.add("copyFrom null", argument, () -> buffer.copyFrom((Object) null), "array");
    table.add("copyFrom object", argument, () -> buffer.copyFrom("text"), "String");
    table.add("copyFrom chars", argument, () -> buffer.copyFrom(new char[4]), "char");
    table.add("copyFrom booleans", argument, () -> buffer.copyFrom(new boolean[4]), "boolean");
    table.add(
        "copyFrom rows", argument, () -> buffer.copyFrom(new int[4][4]), "int\\[\\]\\[\\]|array");
    table.add(
        "copyFrom too much", argument, () -> buffer.slice(0, 15).copyFrom(new int[4]), "15", "16");
    table.closed("copyFrom to closed", () -> closedBuffer.copyFrom(new int[4]), "closed");
    table.closed("copyFrom to slice of closed", () -> sliceOfClosed.copyFrom(new int[4]), "closed");
    table.add("copyTo null", argument, () -> buffer.copyTo((Object) null), "array");
    table.add("copyTo object", argument, () -> buffer.copyTo(new Object[1]), "Object");
    table.add(
        "copyTo too much", argument, () -> buffer.slice(0, 15).copyTo(new int[4]), "15", "16");
    table.closed("copyTo from closed", () -> closedBuffer.copyTo(new int[4]), "closed");
    table.closed("toBytes of closed", () -> sliceOfClosed.toBytes(), "closed");

    DeviceBuffer none = null;
    table.add("copy to null", argument, () -> stream.copy(none, buffer), "target");
    table.add("copy from null", argument, () -> stream.copy(buffer, none), "source");
    table.add(
        "copy from null pinned",
        argument,
        () -> stream.copy(buffer, (PinnedBuffer) null),
        "source");
    table.add(
        "copy to null pinned", argument, () -> stream.copy((PinnedBuffer) null, buffer), "target");
    table.add(
        "copy too much",
        argument,
        () -> stream.copy(buffer.slice(0, 99), buffer.slice(200, 100)),
        "99",
        "100");
    table.add(
        "copy overlapping",
        argument,
        () -> stream.copy(buffer.slice(1, 100), buffer.slice(0, 100)),
        "overlap");
    table.add("copy onto itself", argument, () -> stream.copy(buffer, buffer), "overlap");
    table.closed("copy to closed", () -> stream.copy(closedBuffer, buffer), "closed");
    table.closed("copy from closed", () -> stream.copy(buffer, sliceOfClosed), "closed");
    table.closed(
        "copy from closed pinned",
        () -> {
          PinnedBuffer pinned = device.allocatePinned(64);
          pinned.close();
          pinned.close();
          stream.copy(buffer, pinned);
        },
        "closed");
    table.add(
        "copy too much to pinned",
        argument,
        () -> {
          try (PinnedBuffer pinned = device.allocatePinned(63)) {
            stream.copy(pinned, buffer.slice(0, 64));
          }
        },
        "63",
        "64");
    table.add("fill null", argument, () -> stream.fill(null, (byte) 0), "target");
    table.closed("fill closed", () -> stream.fill(closedBuffer, (byte) 0), "closed");
    table.closed(
        "fill on closed stream", () -> closedStream.fill(buffer, (byte) 0), "stream", "closed");
    table.closed("query closed stream", () -> closedStream.query(), "stream", "closed");
    table.closed("synchronize closed stream", () -> closedStream.synchronize(), "stream", "closed");
    table.add("record null", argument, () -> stream.record(null), "event");
    table.add("wait for null", argument, () -> stream.waitFor(null), "event");
    table.add("record foreign", argument, () -> stream.record(foreign(Event.class)), "event");
    table.add(
        "copy foreign", argument, () -> stream.copy(buffer, foreign(DeviceBuffer.class)), "source");
    table.closed(
        "record closed event", () -> stream.record(closedEvent(device)), "event", "closed");
    table.closed(
        "wait for closed event", () -> stream.waitFor(closedEvent(device)), "event", "closed");
    table.add("synchronize for null", argument, () -> stream.synchronize(null), "timeout");
    table.add(
        "elapsed since null",
        argument,
        () -> {
          try (Event event = device.newEvent()) {
            event.elapsedSince(null);
          }
        },
        "start");

    CommunicatorConfig config = TestBackend.CONFIG;
    UniqueId id = UniqueId.create(backend);
    List<Device> holey = new ArrayList<>();
    holey.add(device);
    holey.add(null);
    table.add("0 ranks", argument, () -> Communicator.initAll(backend, 0), "nranks", "0");
    table.add("-3 ranks", argument, () -> Communicator.initAll(backend, -3), "nranks", "-3");
    if (backend == Backend.HOST) {
      table.add("too many ranks", argument, () -> Communicator.initAll(backend, 1025), "1024|1025");
    }
    table.add("no devices", argument, () -> Communicator.initAll(List.of(), config), "device");
    table.add("null devices", argument, () -> Communicator.initAll(null, config), "devices");
    table.add(
        "a null device", argument, () -> Communicator.initAll(holey, config), "device", "null");
    table.add("null config", argument, () -> Communicator.initAll(List.of(device), null), "config");
    table.add(
        "rank -1", argument, () -> Communicator.initRank(device, 2, id, -1, config), "rank", "-1");
    table.add(
        "rank n", argument, () -> Communicator.initRank(device, 2, id, 2, config), "rank", "2");
    table.add(
        "nranks 0", argument, () -> Communicator.initRank(device, 0, id, 0, config), "nranks", "0");
    table.add(
        "null device", argument, () -> Communicator.initRank(null, 1, id, 0, config), "device");
    table.add(
        "null id",
        argument,
        () -> Communicator.initRank(device, 1, (UniqueId) null, 0, config),
        "\\bid\\b");
    table.add(
        "rank's null config",
        argument,
        () -> Communicator.initRank(device, 1, id, 0, null),
        "config");

    table.add("split color", argument, onAll(c -> c.split(-2, 0)), "color", "-2");
    table.add("split config", argument, onAll(c -> c.split(0, 0, null)), "config");
    table.closed("split closed", () -> closedCommunicators.get(0).split(0, 0), "closed");

    for (Duration bad : List.of(Duration.ZERO, Duration.ofSeconds(-1))) {
      table.add(
          "init timeout " + bad,
          argument,
          () -> CommunicatorConfig.builder().initTimeout(bad),
          "init-timeout");
      table.add(
          "operation timeout " + bad,
          argument,
          () -> CommunicatorConfig.builder().operationTimeout(bad),
          "operation-timeout");
      table.add(
          "close timeout " + bad,
          argument,
          () -> CommunicatorConfig.builder().closeTimeout(bad),
          "close-timeout");
    }
    for (long bytes : new long[] {-4096, 0, 2048, 5000, 1L << 31, Long.MIN_VALUE}) {
      table.add(
          "fifo of " + bytes,
          argument,
          () -> CommunicatorConfig.builder().fifoBytes(bytes),
          "fifo-bytes",
          "" + bytes,
          "4096");
    }

    String text = id.toString();
    for (String bad :
        List.of(
            "",
            "zz",
            "0",
            text.substring(1),
            text.substring(2),
            text + "00",
            text.replace(text.charAt(3), 'g'))) {
      table.add(
          "id of " + bad.length() + " characters",
          argument,
          () -> UniqueId.parse(bad),
          "unique id");
    }
    Path noFile = null;
    table.add("null scalar", argument, () -> ReduceOp.preMulSum(none), "scalar");
    table.add("null id", argument, () -> Communicator.initRank(device, 2, null, 0), "pass one");
    table.add("null id text", argument, () -> UniqueId.parse(null), "\\bid\\b|text");
    table.add("null id bytes", argument, () -> UniqueId.ofBytes(null), "bytes");
    table.add("id to no file", argument, () -> id.writeTo(noFile), "file");
    table.add("id from no file", argument, () -> UniqueId.readFrom(noFile, null), "file|timeout");
    table.add("null type label", argument, () -> DataType.ofLabel(null), "null");
    table.add("null op label", argument, () -> ReduceOp.ofLabel(null), "null");
    table.add("null backend label", argument, () -> Backend.ofLabel(null), "null");
    table.add(
        "null timeout",
        argument,
        () -> CommunicatorConfig.builder().operationTimeout(null),
        "operation-timeout");
    table.add("id of 127 bytes", argument, () -> UniqueId.ofBytes(new byte[127]), "127", "128");
    table.add("id of no bytes", argument, () -> UniqueId.ofBytes(new byte[0]), "128");
    return table.rows;
  }

  /** A wrong call of all ranks at once, since they agree whether to go on; throws rank 0's. */
  private static Wrong onAll(Communicators.RankTask task) {
    return () -> {
      if (ranks.outcomes(task)[0] instanceof Exception e) {
        throw e;
      }
    };
  }

  private static Event closedEvent(Device device) {
    Event event = device.newEvent();
    event.close();
    event.close();
    return event;
  }

  @ParameterizedTest(name = "{0}")
  @MethodSource({"operations", "objects"})
  void isRefused(Row row) {
    Throwable thrown = null;
    try {
      row.call().run();
    } catch (Throwable e) {
      thrown = e;
    }
    try {
      assertRefused(row, thrown);
    } catch (AssertionError e) {
      renew();
      throw e;
    }
    assertEquals(Communicator.State.READY, ranks.get(0).state());
    try {
      ranks.assertUsable();
    } catch (RuntimeException | Error e) {
      renew();
      throw e;
    }
  }

  /** What was not refused may have started something: the other rows get new communicators. */
  private static void renew() {
    Ranks old = ranks;
    old.communicators.forEach(Communicator::abort);
    old.communicators.close();
    // The rows hold buffers and streams of the old ones, which are not closed for that reason.
    ranks = new Ranks(2);
  }

  private static void assertRefused(Row row, Throwable thrown) {
    assertNotNull(thrown, "nothing was thrown");
    assertTrue(
        row.types().stream().anyMatch(type -> type.isInstance(thrown)),
        () -> thrown.getClass().getSimpleName() + " instead of " + row.types() + ": " + thrown);
    for (String word : row.words()) {
      assertTrue(
          Pattern.compile(word, Pattern.CASE_INSENSITIVE).matcher(thrown.getMessage()).find(),
          () -> "'" + word + "' is not in: " + thrown.getMessage());
    }
  }

  @Test
  void unusedArgumentsAreNotLookedAt() {
    ranks.put(0, 1, 2, 3);
    ranks.out.get(1).copyFrom(new int[3]);
    DataType type = DataType.INT32;
    Stream s0 = ranks.streams.get(0);
    Stream s1 = ranks.streams.get(1);
    ranks.get(0).broadcast(ranks.in.get(0), ranks.out.get(0), 3, type, 0, s0);
    ranks.get(1).broadcast(null, ranks.out.get(1), 3, type, 0, s1);
    ranks.get(0).reduce(ranks.in.get(0), null, 3, type, ReduceOp.SUM, 1, s0);
    ranks.get(1).reduce(ranks.out.get(1), ranks.in.get(1), 3, type, ReduceOp.SUM, 1, s1);
    ranks.get(0).gather(ranks.in.get(0), null, 3, type, 1, s0);
    ranks.get(1).gather(ranks.in.get(1), ranks.out.get(1), 3, type, 1, s1);
    ranks.get(0).gatherV(ranks.in.get(0), 1, null, null, null, type, 1, s0);
    long[] ones = {1, 1};
    long[] places = {6, 7};
    ranks.get(1).gatherV(ranks.in.get(1), 1, ranks.out.get(1), ones, places, type, 1, s1);
    ranks.get(0).scatter(null, ranks.out.get(0), 1, type, 1, s0);
    ranks.get(1).scatter(ranks.in.get(1), ranks.out.get(1).slice(32), 1, type, 1, s1);
    ranks.get(0).scatterV(null, null, null, ranks.out.get(0).slice(4), 1, type, 1, s0);
    DeviceBuffer to = ranks.out.get(1).slice(36);
    ranks.get(1).scatterV(ranks.in.get(1), ones, new long[] {2, 0}, to, 1, type, 1, s1);
    ranks.synchronize();
    assertEquals(List.of(2, 6, 3), boxed(ranks.got(0, 3)));
    assertEquals(List.of(1, 2, 3, 2, 4, 6, 1, 2, 4, 2), boxed(ranks.got(1, 10)));
  }

  private static List<Integer> boxed(int[] values) {
    return Arrays.stream(values).boxed().toList();
  }

  @Test
  void countsArraysMayBeReusedAtOnce() {
    long[] counts = {1, 1};
    long[] places = {0, 1};
    for (int rank = 0; rank < 2; rank++) {
      ranks.put(rank, 5 + rank);
      ranks
          .get(rank)
          .allGatherV(
              ranks.in.get(rank),
              ranks.out.get(rank),
              counts,
              places,
              DataType.INT32,
              ranks.streams.get(rank));
      if (rank == 0) {
        // The call has taken what it needs, though it cannot be complete yet.
        counts = counts.clone();
        places = places.clone();
      }
    }
    Arrays.fill(counts, -1);
    Arrays.fill(places, -1);
    ranks.synchronize();
    assertEquals(List.of(5, 6), boxed(ranks.got(0, 2)));
    assertEquals(List.of(5, 6), boxed(ranks.got(1, 2)));
  }

  @Test
  void twoThreadsInOneCommunicatorAtOnceAreRefused() throws Exception {
    CommunicatorConfig small =
        CommunicatorConfig.builder()
            .fifoBytes(4096)
            .operationTimeout(Duration.ofSeconds(30))
            .build();
    int calls = 5000;
    try (Ranks pair = new Ranks(2, small);
        Stream other = pair.get(0).device().newStream()) {
      AtomicInteger taken = new AtomicInteger();
      AtomicReference<NcclException> refusal = new AtomicReference<>();
      List<Thread> callers = new ArrayList<>();
      for (Stream stream : List.of(pair.streams.get(0), other)) {
        callers.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      while (taken.getAndIncrement() < calls) {
                        boolean called = false;
                        while (!called) {
                          try {
                            pair.get(0).barrier(stream);
                            called = true;
                          } catch (InvalidUsageException e) {
                            refusal.compareAndSet(null, e);
                            Thread.onSpinWait();
                          }
                        }
                      }
                    }));
      }
      // More than any queue holds: one of them is stuck in a call until the other rank has come.
      assertTrue(
          TestBackend.eventually(() -> refusal.get() != null), "no overlapping call was refused");
      assertTrue(refusal.get().getMessage().contains("thread"), refusal.get().getMessage());
      for (int i = 0; i < calls; i++) {
        pair.get(1).barrier(pair.streams.get(1));
      }
      for (Thread caller : callers) {
        caller.join();
      }
      pair.synchronize();
      other.synchronize();
      pair.assertUsable();
    }
  }

  @Test
  void handingACommunicatorOverIsFine() throws Exception {
    for (int i = 0; i < 10; i++) {
      Thread thread = Thread.ofPlatform().start(ranks::assertUsable);
      thread.join();
      Thread.startVirtualThread(ranks::assertUsable).join();
    }
    ranks.assertUsable();
  }

  @Test
  void ranksThatDoNotComeAreNamed() {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    CommunicatorConfig config =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(500)).build();
    long start = System.nanoTime();
    Row row =
        new Row(
            "missing ranks",
            List.of(DeadlineException.class),
            List.of("rank", "\\b1\\b", "\\b2\\b", "init"),
            () -> {});
    assertRefused(
        row, thrownBy(() -> Communicator.initRank(TestBackend.device(0), 3, id, 0, config)));
    long millis = (System.nanoTime() - start) / 1_000_000;
    assertTrue(millis >= 450 && millis < 10_000, millis + " ms");
  }

  @Test
  void ranksThatContradictEachOtherAreRefused() throws Exception {
    TestBackend.requireRoomFor(2);
    assertContradiction(2, 0, 2, 0, "rank 0|rank is 0");
    assertContradiction(2, 0, 3, 1, "nranks|number of ranks");
  }

  private static void assertContradiction(int n, int rank, int otherN, int otherRank, String words)
      throws Exception {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    CommunicatorConfig config =
        CommunicatorConfig.builder().initTimeout(Duration.ofMillis(1500)).build();
    List<Throwable> thrown = new ArrayList<>();
    Thread other =
        Thread.ofPlatform()
            .start(
                () -> {
                  Throwable e =
                      thrownBy(
                          () -> Communicator.initRank(TestBackend.device(0), n, id, rank, config));
                  synchronized (thrown) {
                    thrown.add(e);
                  }
                });
    Throwable mine =
        thrownBy(() -> Communicator.initRank(TestBackend.device(1), otherN, id, otherRank, config));
    other.join();
    thrown.add(mine);
    // Who came first may only see that the ranks did not come.
    List<Throwable> told = thrown.stream().filter(InvalidUsageException.class::isInstance).toList();
    assertTrue(!told.isEmpty(), thrown::toString);
    assertTrue(
        told.stream().anyMatch(e -> Pattern.compile(words).matcher(e.getMessage()).find()),
        told::toString);
    assertTrue(thrown.stream().allMatch(NcclException.class::isInstance), thrown::toString);
  }

  private static Throwable thrownBy(Wrong call) {
    try {
      call.run();
      return null;
    } catch (Throwable e) {
      return e;
    }
  }

  // -- files, environment

  @Test
  void anIdGoesThroughAFile(@TempDir Path folder) throws IOException {
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    Path file = folder.resolve("id");
    id.writeTo(file);
    assertEquals(PosixFilePermissions.fromString("rw-------"), Files.getPosixFilePermissions(file));
    assertEquals(id, UniqueId.readFrom(file, Duration.ofSeconds(1)));
    assertEquals(id, UniqueId.parse(" " + id + "\n"));
    assertEquals(id, UniqueId.ofBytes(id.toBytes()));
    assertTrue(!id.equals(UniqueId.create(TestBackend.BACKEND)));
  }

  @ParameterizedTest
  @CsvSource({"rw-r--r--", "rw----r--", "rw-rw----", "rw-----w-"})
  void anIdFileThatOthersCouldReadIsRefused(String permissions, @TempDir Path folder)
      throws IOException {
    Path file = folder.resolve("id");
    UniqueId.create(TestBackend.BACKEND).writeTo(file);
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString(permissions));
    Row row =
        new Row(
            "", List.of(SystemErrorException.class), List.of(permissions, "chmod 600"), () -> {});
    assertRefused(row, thrownBy(() -> UniqueId.readFrom(file, Duration.ofSeconds(1))));
  }

  @Test
  void anIdFileThatIsNotThereOrNotOneIsRefused(@TempDir Path folder) throws IOException {
    Path file = folder.resolve("id");
    Row missing =
        new Row("", List.of(DeadlineException.class), List.of(file.toString(), "50 ms"), () -> {});
    assertRefused(missing, thrownBy(() -> UniqueId.readFrom(file, Duration.ofMillis(50))));
    Files.writeString(file, "not an id");
    Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rw-------"));
    Row wrong = new Row("", List.of(NcclException.class), List.of("not a unique id"), () -> {});
    assertRefused(wrong, thrownBy(() -> UniqueId.readFrom(file, Duration.ofSeconds(1))));
    Row nowhere =
        new Row("", List.of(SystemErrorException.class), List.of("cannot write"), () -> {});
    Path noFolder = folder.resolve("no/such/id");
    UniqueId id = UniqueId.create(TestBackend.BACKEND);
    assertRefused(nowhere, thrownBy(() -> id.writeTo(noFolder)));
  }

  @Tag("process")
  @ParameterizedTest
  @CsvSource({
    "NCCL4J_INIT_TIMEOUT, soon, init-timeout",
    "NCCL4J_OPERATION_TIMEOUT, -1s, operation-timeout",
    "NCCL4J_CLOSE_TIMEOUT, 1h, close-timeout",
    "NCCL4J_FIFO_BYTES, 1M, NCCL4J_FIFO_BYTES",
    "NCCL4J_FIFO_BYTES, 99999999999999999999, NCCL4J_FIFO_BYTES"
  })
  void aVariableThatCannotBeReadIsRefused(String variable, String value, String name)
      throws Exception {
    ProcessBuilder builder = ProcessRanks.java(ShowSettings.class);
    builder.environment().put(variable, value);
    String printed = output(builder);
    assertTrue(printed.contains("InvalidArgumentException"), printed);
    assertTrue(printed.contains(name), printed);
    assertTrue(printed.contains(value), printed);
  }

  @Tag("process")
  @Test
  void variablesSetWhatTheyName() throws Exception {
    ProcessBuilder builder = ProcessRanks.java(ShowSettings.class);
    builder.environment().put("NCCL4J_INIT_TIMEOUT", "500ms");
    builder.environment().put("NCCL4J_OPERATION_TIMEOUT", "off");
    builder.environment().put("NCCL4J_CLOSE_TIMEOUT", "2m");
    builder.environment().put("NCCL4J_FIFO_BYTES", "65536");
    String printed = output(builder);
    assertTrue(printed.contains("init-timeout=500 ms from NCCL4J_INIT_TIMEOUT"), printed);
    assertTrue(printed.contains("operation-timeout=off from NCCL4J_OPERATION_TIMEOUT"), printed);
    assertTrue(printed.contains("close-timeout=120000 ms from NCCL4J_CLOSE_TIMEOUT"), printed);
    assertTrue(printed.contains("fifo-bytes=65536 B from NCCL4J_FIFO_BYTES"), printed);
  }

  private static String output(ProcessBuilder builder) throws Exception {
    Process process = builder.start();
    try {
      String printed = new String(process.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
      assertTrue(process.waitFor(20, TimeUnit.SECONDS));
      return printed;
    } finally {
      process.destroyForcibly();
    }
  }

  /** Prints the settings of its environment, or what is wrong with it. */
  static final class ShowSettings {
    private ShowSettings() {}

    public static void main(String[] arguments) {
      try {
        CommunicatorConfig.defaults()
            .settings()
            .forEach(s -> System.out.println(s.name() + "=" + s.value() + " from " + s.source()));
      } catch (RuntimeException e) {
        System.out.println(e);
      }
    }
  }
}

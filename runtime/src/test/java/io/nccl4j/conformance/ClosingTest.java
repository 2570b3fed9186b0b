package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PinnedBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.time.Duration;
import java.util.Arrays;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * What is closed while it is in use: buffers are freed when nothing uses them any more, and streams
 * give up what does not end.
 */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class ClosingTest {
  private static final int COUNT = 1 << 16;
  private static final int BYTES = COUNT * Integer.BYTES;
  private static final Duration SOON = Duration.ofMillis(300);

  /** Far below the deadline of an operation, which nothing here may wait for. */
  private static final long AT_MOST_MILLIS = 8000;

  private static CommunicatorConfig impatient() {
    return CommunicatorConfig.builder()
        .initTimeout(Duration.ofSeconds(30))
        .operationTimeout(Duration.ofSeconds(50))
        .closeTimeout(SOON)
        .build();
  }

  /** The program's memory on a device, of whatever place. */
  private static long taken(Device device) {
    return MemoryReport.of(device).bytes(MemoryPurpose.USER);
  }

  private static int[] filled(int value) {
    int[] values = new int[COUNT];
    Arrays.fill(values, value);
    return values;
  }

  private static void hold(Ranks ranks) {
    ranks.get(0).barrier(ranks.streams.get(0));
  }

  private static void letGo(Ranks ranks) {
    ranks.get(1).barrier(ranks.streams.get(1));
  }

  // ---- buffers

  @Test
  void anOperationGoesOnWithTheMemoryOfAClosedBuffer() {
    try (Ranks ranks = new Ranks(2)) {
      Device device = ranks.get(0).device();
      Stream stream = ranks.streams.get(0);
      long before = taken(device);
      DeviceBuffer buffer = device.allocate(BYTES);
      DeviceBuffer slice = buffer.slice(16);
      buffer.copyFrom(filled(5));
      ranks.get(0).allReduce(buffer, ranks.out.get(0), COUNT, DataType.INT32, ReduceOp.SUM, stream);
      buffer.close();
      buffer.close();
      assertTrue(buffer.isClosed() && slice.isClosed());
      assertEquals(before + BYTES, taken(device), "the operation has not run");
      for (DeviceBuffer closed : new DeviceBuffer[] {buffer, slice}) {
        assertThrows(InvalidUsageException.class, () -> closed.toBytes());
        assertThrows(InvalidUsageException.class, () -> stream.fill(closed, (byte) 1));
        assertThrows(
            InvalidUsageException.class,
            () -> ranks.get(0).broadcast(closed, closed, 1, DataType.INT8, 0, stream));
      }
      // What is allocated next lies elsewhere.
      try (DeviceBuffer next = device.allocate(BYTES)) {
        next.copyFrom(filled(-1));
        ranks.in.get(1).copyFrom(filled(7));
        ranks.sum(1, COUNT);
        ranks.synchronize();
      }
      assertArrayEquals(filled(12), ranks.got(0, COUNT));
      assertArrayEquals(filled(12), ranks.got(1, COUNT));
      assertEquals(before, taken(device));
    }
  }

  @Test
  void copiesGoOnWithTheMemoryOfClosedBuffers() {
    try (Ranks ranks = new Ranks(2);
        DeviceBuffer target = ranks.get(0).device().allocate(BYTES)) {
      Device device = ranks.get(0).device();
      Stream stream = ranks.streams.get(0);
      long before = taken(device);
      DeviceBuffer between = device.allocate(BYTES);
      PinnedBuffer source = device.allocatePinned(BYTES);
      source.segment().fill((byte) 3);
      hold(ranks);
      stream.copy(between, source);
      stream.copy(target, between.slice(0, BYTES));
      source.close();
      source.close();
      between.close();
      assertThrows(InvalidUsageException.class, () -> stream.copy(target, source));
      try (DeviceBuffer next = device.allocate(BYTES);
          PinnedBuffer other = device.allocatePinned(BYTES)) {
        next.copyFrom(filled(-1));
        other.segment().fill((byte) -1);
        letGo(ranks);
        ranks.synchronize();
      }
      assertArrayEquals(filled(0x03030303), target.toInts());
      assertEquals(before, taken(device));
    }
  }

  /** Code that throws before it synchronises: its buffers come back when the stream goes on. */
  @Test
  void memoryOfCodeThatThrewComesBack() {
    int times = 100;
    // The operations are held for as long as a busy machine needs to call them all.
    try (Ranks ranks = new Ranks(2, impatient())) {
      Device device = ranks.get(0).device();
      Stream stream = ranks.streams.get(0);
      long before = taken(device);
      for (int i = 0; i < times; i++) {
        int number = i;
        IllegalStateException own = new IllegalStateException("the program's own");
        Throwable thrown =
            assertThrows(
                IllegalStateException.class,
                () -> {
                  try (DeviceBuffer buffer = device.allocate(1 << 16)) {
                    ranks
                        .get(0)
                        .allReduce(
                            buffer, buffer, number + 1, DataType.INT32, ReduceOp.SUM, stream);
                    throw own;
                  }
                });
        assertEquals(0, thrown.getSuppressed().length, () -> thrown.getSuppressed()[0].toString());
      }
      assertEquals(before + ((long) times << 16), taken(device));
      for (int i = 0; i < times; i++) {
        ranks.sum(1, i + 1);
      }
      ranks.synchronize();
      assertEquals(before, taken(device));
      ranks.assertUsable();
    }
  }

  /** The works of a group keep their buffers, whether they are launched or discarded. */
  @Test
  @SuppressWarnings("try")
  void aGroupKeepsTheBuffersItUses() {
    try (Ranks ranks = new Ranks(2)) {
      Device device = ranks.get(0).device();
      Stream stream = ranks.streams.get(0);
      long before = taken(device);
      try (Group group = Group.start()) {
        try (DeviceBuffer buffer = device.allocate(BYTES)) {
          buffer.copyFrom(filled(1));
          ranks
              .get(0)
              .allReduce(buffer, ranks.out.get(0), COUNT, DataType.INT32, ReduceOp.SUM, stream);
        }
        try (DeviceBuffer unused = device.allocate(BYTES)) {
          assertFalse(unused.isClosed());
        }
        assertEquals(before + BYTES, taken(device));
        group.launch();
      }
      assertEquals(before + BYTES, taken(device));
      ranks.in.get(1).copyFrom(filled(2));
      ranks.sum(1, COUNT);
      ranks.synchronize();
      assertArrayEquals(filled(3), ranks.got(0, COUNT));
      try (Group group = Group.start();
          DeviceBuffer buffer = device.allocate(BYTES)) {
        ranks.get(0).send(buffer, COUNT, DataType.INT32, 1, stream);
      }
      assertEquals(before, taken(device));
      ranks.assertUsable();
    }
  }

  @Test
  void aLaunchedGraphKeepsTheBuffersItUses() {
    try (Ranks ranks = new Ranks(2)) {
      Device device = ranks.get(0).device();
      Stream stream = ranks.streams.get(0);
      long before = taken(device);
      DeviceBuffer buffer = device.allocate(BYTES);
      buffer.copyFrom(filled(4));
      stream.beginCapture();
      ranks.get(0).allReduce(buffer, ranks.out.get(0), COUNT, DataType.INT32, ReduceOp.SUM, stream);
      try (Graph graph = stream.endCapture();
          ExecutableGraph executable = graph.instantiate()) {
        executable.launch(stream);
        buffer.close();
        assertThrows(InvalidUsageException.class, () -> executable.launch(stream));
        assertEquals(before + BYTES, taken(device));
        ranks.in.get(1).copyFrom(filled(5));
        ranks.sum(1, COUNT);
        ranks.synchronize();
        assertArrayEquals(filled(9), ranks.got(0, COUNT));
        assertEquals(before, taken(device));
      }
    }
  }

  // ---- streams

  /** The order of try-with-resources: buffer, stream, communicator; nobody answers. */
  @Test
  void closingInTheOrderOfDeclarationIsBounded() {
    try (Ranks ranks = new Ranks(2, impatient())) {
      Device device = ranks.get(0).device();
      long before = taken(device);
      long start = System.nanoTime();
      Communicator communicator = ranks.get(0);
      try (communicator;
          Stream stream = device.newStream();
          DeviceBuffer buffer = device.allocate(BYTES)) {
        communicator.allReduce(buffer, buffer, COUNT, DataType.INT32, ReduceOp.SUM, stream);
        communicator.allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
      }
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis >= SOON.toMillis() && millis < AT_MOST_MILLIS, millis + " ms");
      NcclException e = communicator.failure().orElseThrow();
      assertInstanceOf(AbortedException.class, e);
      assertTrue(e.getMessage().contains("allReduce(65536 int32, sum) #"), e.getMessage());
      assertTrue(e.getMessage().contains("unfinished when its stream was closed"), e.getMessage());
      assertTrue(e.getMessage().contains("close-timeout"), e.getMessage());
      assertTrue(
          TestBackend.eventually(() -> ranks.get(1).state() != Communicator.State.READY),
          "the other rank is told");
      ranks.get(1).close();
      assertTrue(TestBackend.eventually(() -> taken(device) == before), "memory comes back");
    }
  }

  /** What holds it up is another stream, which goes on as if nothing had been. */
  @Test
  void closingAStreamThatWaitsForAnotherIsBounded() {
    try (Ranks holding = new Ranks(2);
        Ranks ranks = new Ranks(2, impatient());
        Event event = holding.get(0).device().newEvent()) {
      Device device = ranks.get(0).device();
      long before = taken(device);
      Stream stream = device.newStream();
      DeviceBuffer buffer = device.allocate(BYTES);
      hold(holding);
      holding.streams.get(0).record(event);
      stream.waitFor(event);
      ranks.get(0).allReduce(buffer, buffer, 1, DataType.INT32, ReduceOp.SUM, stream);
      buffer.close();
      long start = System.nanoTime();
      stream.close();
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis < AT_MOST_MILLIS, millis + " ms");
      assertTrue(stream.isCapturing() || !holding.streams.get(0).query());
      assertNotEquals(Communicator.State.READY, ranks.get(0).state());
      letGo(holding);
      holding.synchronize();
      holding.assertUsable();
      ranks.communicators.forEach(Communicator::close);
      assertTrue(TestBackend.eventually(() -> taken(device) == before), "memory comes back");
    }
  }

  @Test
  void closingAGraphUnderWayIsBounded() {
    try (Ranks ranks = new Ranks(2, impatient())) {
      Stream stream = ranks.streams.get(0);
      stream.beginCapture();
      ranks.sum(0, 4);
      ExecutableGraph executable;
      try (Graph graph = stream.endCapture()) {
        executable = graph.instantiate();
      }
      executable.launch(stream);
      long start = System.nanoTime();
      executable.close();
      long millis = (System.nanoTime() - start) / 1_000_000;
      assertTrue(millis >= SOON.toMillis() && millis < AT_MOST_MILLIS, millis + " ms");
      NcclException e = assertThrows(NcclException.class, stream::synchronize);
      assertTrue(e.getMessage().contains("unfinished when it was closed"), e.getMessage());
    }
  }

  /** A stream that ends in time is not cut short. */
  @Test
  void closingAStreamCompletesWhatEndsInTime() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Stream stream = ranks.get(0).device().newStream();
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.sum(0, 1, stream);
      Thread late =
          Thread.ofPlatform()
              .start(
                  () -> {
                    try {
                      Thread.sleep(300);
                    } catch (InterruptedException e) {
                      throw new IllegalStateException(e);
                    }
                    ranks.sum(1, 1);
                  });
      stream.close();
      late.join();
      assertEquals(3, ranks.got(0, 1)[0]);
      ranks.synchronize();
      ranks.assertUsable();
    }
  }
}

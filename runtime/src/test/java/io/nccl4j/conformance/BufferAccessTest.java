package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.Buffer;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.CharBuffer;
import java.nio.DoubleBuffer;
import java.nio.FloatBuffer;
import java.nio.IntBuffer;
import java.nio.LongBuffer;
import java.nio.ShortBuffer;
import java.nio.channels.Pipe;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.function.Executable;

/** What goes in and out of buffers without a stream: arrays, segments, NIO buffers, the memory. */
@Timeout(value = 60, threadMode = ThreadMode.SEPARATE_THREAD)
class BufferAccessTest {
  private static final int BYTES = 4096;

  private final Device device = TestBackend.device(0);
  private final DeviceBuffer buffer = device.allocate(BYTES);

  BufferAccessTest() {
    buffer.copyFrom(new byte[BYTES]);
  }

  @AfterEach
  void close() {
    buffer.close();
  }

  @Test
  void partsOfArraysGoInAndOut() {
    int[] data = {1, 2, 3, 4, 5};
    buffer.slice(DataType.INT32, 2, 3).copyFrom(data, 1, 3);
    assertArrayEquals(new int[] {0, 0, 2, 3, 4, 0}, buffer.slice(DataType.INT32, 0, 6).toInts());
    int[] back = {9, 9, 9, 9};
    buffer.slice(DataType.INT32, 3, 2).copyTo(back, 2, 2);
    assertArrayEquals(new int[] {9, 9, 3, 4}, back);
    // Every kind of array, at an offset that only its own element size makes right.
    Object[] arrays = {
      new byte[] {1, 2, 3},
      new short[] {1, 2, 3},
      new int[] {1, 2, 3},
      new long[] {1, 2, 3},
      new float[] {1, 2, 3},
      new double[] {1, 2, 3}
    };
    for (Object array : arrays) {
      Object out = java.lang.reflect.Array.newInstance(array.getClass().getComponentType(), 3);
      buffer.copyFrom(array, 1, 2);
      buffer.copyTo(out, 0, 2);
      String name = array.getClass().getTypeName();
      assertEquals(2.0, java.lang.reflect.Array.getDouble(out, 0), name);
      assertEquals(3.0, java.lang.reflect.Array.getDouble(out, 1), name);
      assertEquals(0.0, java.lang.reflect.Array.getDouble(out, 2), name);
    }
    buffer.copyFrom(data, 5, 0);
    buffer.copyTo(data, 0, 0);
  }

  @Test
  void partsThatAreNotThereAreRefused() {
    int[] data = new int[5];
    buffer.copyFrom(new int[] {7});
    refused("-1", () -> buffer.copyFrom(data, -1, 2));
    refused("2 to 1", () -> buffer.copyFrom(data, 2, -1));
    refused("6", () -> buffer.copyFrom(data, 4, 2));
    refused("6", () -> buffer.copyTo(data, 6, 0));
    refused("2147483652", () -> buffer.copyTo(data, 5, Integer.MAX_VALUE));
    refused("String", () -> buffer.copyFrom("text", 0, 1));
    refused("null", () -> buffer.copyTo(null, 0, 1));
    refused("15", () -> buffer.slice(0, 15).copyFrom(data, 1, 4));
    refused("15", () -> buffer.slice(0, 15).copyTo(data, 1, 4));
    refused("-1", () -> buffer.slice(DataType.INT32, -1, 2));
    refused("-2", () -> buffer.slice(DataType.INT32, 0, -2));
    refused("4096", () -> buffer.slice(DataType.INT32, 1, BYTES / 4));
    refused("type", () -> buffer.slice(null, 0, 1));
    assertEquals(7, buffer.toInts()[0]);
  }

  @Test
  void segmentsOnAndOffTheHeap() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.JAVA_LONG, 4);
      out.fill((byte) 3);
      buffer.slice(8).copyFrom(out);
      MemorySegment in = MemorySegment.ofArray(new long[2]);
      buffer.copyTo(in);
      assertEquals(0, in.getAtIndex(ValueLayout.JAVA_LONG, 0));
      assertEquals(0x0303030303030303L, in.getAtIndex(ValueLayout.JAVA_LONG, 1));
      MemorySegment back = arena.allocate(BYTES);
      buffer.copyTo(back);
      assertEquals(3, back.get(ValueLayout.JAVA_BYTE, 39));
      assertEquals(0, back.get(ValueLayout.JAVA_BYTE, 40));
      refused("read-only", () -> buffer.copyTo(out.asReadOnly()));
      refused("15", () -> buffer.slice(0, 15).copyFrom(out));
      refused("31", () -> buffer.slice(0, 31).copyTo(out));
    }
    refused("null", () -> buffer.copyFrom((MemorySegment) null));
    refused("null", () -> buffer.copyTo((MemorySegment) null));
    MemorySegment dead;
    try (Arena arena = Arena.ofConfined()) {
      dead = arena.allocate(8);
    }
    assertThrows(InvalidUsageException.class, () -> buffer.copyFrom(dead));
    assertThrows(InvalidUsageException.class, () -> buffer.copyTo(dead));
  }

  @Test
  void aSegmentOfAnotherThreadIsRefused() throws Exception {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment mine = arena.allocate(8);
      Throwable[] thrown = new Throwable[2];
      Thread thread =
          Thread.ofPlatform()
              .start(
                  () -> {
                    thrown[0] =
                        assertThrows(InvalidArgumentException.class, () -> buffer.copyFrom(mine));
                    thrown[1] =
                        assertThrows(InvalidArgumentException.class, () -> buffer.copyTo(mine));
                  });
      thread.join();
      assertTrue(thrown[0].getMessage().contains("thread"), thrown[0].getMessage());
      assertTrue(thrown[1] != null);
    }
  }

  /** Each kind of NIO buffer, on and off the heap, in either byte order, from a position on. */
  @Test
  void nioBuffersKeepTheirValuesWhateverTheirOrder() {
    for (ByteOrder order : new ByteOrder[] {ByteOrder.BIG_ENDIAN, ByteOrder.LITTLE_ENDIAN}) {
      for (boolean direct : new boolean[] {false, true}) {
        for (DataType type : WITH_BUFFERS) {
          check(type, order, direct);
        }
      }
    }
  }

  private static final DataType[] WITH_BUFFERS = {
    DataType.INT8,
    DataType.FLOAT16,
    DataType.INT32,
    DataType.INT64,
    DataType.FLOAT32,
    DataType.FLOAT64
  };

  private void check(DataType type, ByteOrder order, boolean direct) {
    String what = type + " " + order + " " + direct;
    Buffer source = view(type, order, direct);
    for (int i = 0; i < 6; i++) {
      put(source, i, 10 + i);
    }
    source.position(1).limit(5);
    buffer.copyFrom(source);
    assertEquals(5, source.position(), what);
    assertEquals(5, source.limit(), what);
    assertEquals(11, nativeValue(type, 0), what);
    assertEquals(14, nativeValue(type, 3), what);

    Buffer target = view(type, order, direct);
    target.position(2).limit(5);
    buffer.copyTo(target);
    assertEquals(5, target.position(), what);
    target.clear();
    for (int i = 0; i < 6; i++) {
      assertEquals(i < 2 || i > 4 ? 0 : 9 + i, get(target, i), what + " " + i);
    }
  }

  private static Buffer view(DataType type, ByteOrder order, boolean direct) {
    int bytes = 6 * type.byteSize();
    ByteBuffer raw = direct ? ByteBuffer.allocateDirect(bytes) : ByteBuffer.allocate(bytes);
    ByteBuffer ordered = raw.order(order);
    return switch (type) {
      case INT8 -> ordered;
      case FLOAT16 -> ordered.asShortBuffer();
      case INT32 -> ordered.asIntBuffer();
      case INT64 -> ordered.asLongBuffer();
      case FLOAT32 -> ordered.asFloatBuffer();
      default -> ordered.asDoubleBuffer();
    };
  }

  private static void put(Buffer buffer, int at, int value) {
    switch (buffer) {
      case ByteBuffer b -> b.put(at, (byte) value);
      case ShortBuffer b -> b.put(at, (short) value);
      case IntBuffer b -> b.put(at, value);
      case LongBuffer b -> b.put(at, value);
      case FloatBuffer b -> b.put(at, value);
      case DoubleBuffer b -> b.put(at, value);
      default -> throw new AssertionError(buffer);
    }
  }

  private static double get(Buffer buffer, int at) {
    return switch (buffer) {
      case ByteBuffer b -> b.get(at);
      case ShortBuffer b -> b.get(at);
      case IntBuffer b -> b.get(at);
      case LongBuffer b -> b.get(at);
      case FloatBuffer b -> b.get(at);
      case DoubleBuffer b -> b.get(at);
      default -> throw new AssertionError(buffer);
    };
  }

  private double nativeValue(DataType type, int at) {
    return switch (type) {
      case INT8 -> buffer.toBytes()[at];
      case FLOAT16 -> {
        short[] shorts = new short[4];
        buffer.copyTo(shorts);
        yield shorts[at];
      }
      case INT32 -> buffer.toInts()[at];
      case INT64 -> buffer.toLongs()[at];
      case FLOAT32 -> buffer.toFloats()[at];
      default -> buffer.toDoubles()[at];
    };
  }

  @Test
  void nioBuffersThatCannotBeCopiedKeepTheirPosition() {
    IntBuffer large = IntBuffer.allocate(BYTES);
    refused("16384", () -> buffer.copyFrom(large));
    refused("16384", () -> buffer.copyTo(large));
    assertEquals(0, large.position());
    for (IntBuffer readOnly :
        new IntBuffer[] {
          IntBuffer.allocate(4).asReadOnlyBuffer(),
          ByteBuffer.allocate(16).order(ByteOrder.BIG_ENDIAN).asReadOnlyBuffer().asIntBuffer()
        }) {
      refused("read-only", () -> buffer.copyTo(readOnly));
      assertEquals(0, readOnly.position());
      buffer.copyFrom(readOnly);
      assertEquals(4, readOnly.position());
    }
    refused("characters", () -> buffer.copyFrom(CharBuffer.allocate(2)));
    refused("null", () -> buffer.copyFrom((Buffer) null));
    refused("null", () -> buffer.copyTo((Buffer) null));
  }

  private static void refused(String word, Executable call) {
    InvalidArgumentException e = assertThrows(InvalidArgumentException.class, call);
    assertTrue(e.getMessage().contains(word), e.getMessage());
    assertFalse(e.remedy().isEmpty());
  }

  // ---- the memory itself

  @Test
  void theSegmentIsTheMemoryUntilTheBufferIsClosed() {
    DeviceBuffer own = device.allocate(DataType.INT32, 1024);
    if (TestBackend.BACKEND == Backend.CUDA) {
      assertTrue(own.hostSegment().isEmpty());
      own.close();
      assertThrows(InvalidUsageException.class, own::hostSegment);
      return;
    }
    DeviceBuffer slice = own.slice(DataType.INT32, 8, 4);
    MemorySegment whole = own.hostSegment().orElseThrow();
    MemorySegment part = slice.hostSegment().orElseThrow();
    assertEquals(4096, whole.byteSize());
    assertEquals(16, part.byteSize());
    assertEquals(slice.address(), part.address());
    part.setAtIndex(ValueLayout.JAVA_INT, 1, 42);
    assertEquals(42, own.toInts()[9]);
    own.copyFrom(new int[] {7});
    assertEquals(7, whole.getAtIndex(ValueLayout.JAVA_INT, 0));
    assertThrows(IndexOutOfBoundsException.class, () -> part.getAtIndex(ValueLayout.JAVA_INT, 4));
    slice.close();
    assertEquals(42, part.getAtIndex(ValueLayout.JAVA_INT, 1));
    own.close();
    assertThrows(IllegalStateException.class, () -> whole.getAtIndex(ValueLayout.JAVA_INT, 0));
    assertThrows(IllegalStateException.class, () -> part.setAtIndex(ValueLayout.JAVA_INT, 0, 1));
    assertThrows(InvalidUsageException.class, own::hostSegment);
    assertThrows(InvalidUsageException.class, slice::hostSegment);
  }

  @Test
  void operationsReadAndWriteTheSegment() {
    TestBackend.requireHost("cuda has no host segment");
    try (Ranks ranks = new Ranks(2)) {
      for (int r = 0; r < 2; r++) {
        ranks.in.get(r).hostSegment().orElseThrow().setAtIndex(ValueLayout.JAVA_INT, 2, 5 + r);
        ranks.sum(r, 3);
      }
      ranks.synchronize();
      for (int r = 0; r < 2; r++) {
        MemorySegment out = ranks.out.get(r).hostSegment().orElseThrow();
        assertEquals(11, out.getAtIndex(ValueLayout.JAVA_INT, 2));
      }
    }
  }

  @Test
  void aSegmentOfWrappedMemoryHasTheCallersLife() {
    TestBackend.requireHost("cuda has no host segment");
    MemorySegment segment;
    try (Arena arena = Arena.ofShared()) {
      DeviceBuffer wrapped = device.wrap(arena.allocate(64, 8));
      segment = wrapped.slice(8).hostSegment().orElseThrow();
      wrapped.close();
      segment.set(ValueLayout.JAVA_LONG, 0, 1);
      assertEquals(56, segment.byteSize());
    }
    assertThrows(IllegalStateException.class, () -> segment.get(ValueLayout.JAVA_LONG, 0));
  }

  /** The pool's buffer objects are used again for other blocks: old segments stay dead. */
  @Test
  void aSegmentOfAPoolsBufferEndsWithIt() {
    TestBackend.requireHost("cuda has no host segment");
    try (MemoryPool pool = MemoryPool.create(device);
        Stream stream = device.newStream()) {
      DeviceBuffer first = pool.allocate(64, stream);
      MemorySegment old = first.hostSegment().orElseThrow();
      first.close();
      assertThrows(IllegalStateException.class, () -> old.get(ValueLayout.JAVA_LONG, 0));
      try (DeviceBuffer second = pool.allocate(64, stream)) {
        MemorySegment now = second.hostSegment().orElseThrow();
        now.set(ValueLayout.JAVA_LONG, 0, 8);
        assertEquals(8, second.toLongs()[0]);
        assertThrows(IllegalStateException.class, () -> old.get(ValueLayout.JAVA_LONG, 0));
      }
    }
  }

  /** The JDK holds a segment as long as a channel reads into it. */
  @Test
  void aBufferThatTheJdkWritesToIsNotClosed() throws Exception {
    TestBackend.requireHost("cuda has no host segment");
    DeviceBuffer own = device.allocate(64);
    Pipe pipe = Pipe.open();
    ByteBuffer target = own.hostSegment().orElseThrow().asByteBuffer();
    Thread reader =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    assertEquals(1, pipe.source().read(target));
                  } catch (IOException e) {
                    throw new AssertionError(e);
                  }
                });
    assertTrue(
        TestBackend.eventually(() -> closeFails(own)), "the buffer could be closed: " + reader);
    assertFalse(own.isClosed());
    assertEquals(1, pipe.sink().write(ByteBuffer.wrap(new byte[] {99})));
    reader.join();
    assertEquals(99, own.toBytes()[0]);
    long before = MemoryReport.of(device).bytes(MemoryPurpose.USER);
    own.close();
    assertTrue(own.isClosed());
    assertTrue(MemoryReport.of(device).bytes(MemoryPurpose.USER) <= before - 64);
    pipe.sink().close();
    pipe.source().close();
  }

  /** Until the reader is inside, closing would succeed: only then is it tried. */
  private static boolean closeFails(DeviceBuffer own) {
    boolean inside =
        Thread.getAllStackTraces().values().stream()
            .flatMap(java.util.Arrays::stream)
            .anyMatch(frame -> frame.getMethodName().equals("read0"));
    if (!inside) {
      return false;
    }
    InvalidUsageException e = assertThrows(InvalidUsageException.class, own::close);
    return e.getMessage().contains("in use");
  }

  // ---- futures

  @Test
  void aStreamsCompletionNeedsNoEvent() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      Stream stream = ranks.streams.get(0);
      stream.completion().get(10, TimeUnit.SECONDS);
      ranks.put(0, 1);
      ranks.put(1, 2);
      ranks.sum(0, 1);
      var future = stream.completion();
      assertFalse(future.isDone());
      ranks.sum(1, 1);
      future.get(10, TimeUnit.SECONDS);
      assertEquals(3, ranks.got(0, 1)[0]);
      assertTrue(ranks.streams.get(1).completion().thenApply(nothing -> true).join());

      stream.beginCapture();
      InvalidUsageException e =
          assertThrows(InvalidUsageException.class, () -> stream.completion());
      assertTrue(e.getMessage().contains("captured"), e.getMessage());
      stream.endCapture().close();
    }
    Stream closed = device.newStream();
    closed.close();
    assertThrows(InvalidUsageException.class, () -> closed.completion());
  }

  @Test
  void aCompletionFailsWithWhatWasQueued() {
    TestBackend.requireHost("NCCL does not detect contradictions by itself");
    try (Ranks ranks = new Ranks(2)) {
      ranks.sum(0, 4);
      var future = ranks.streams.get(0).completion();
      ranks.sum(1, 5);
      var e =
          assertThrows(
              java.util.concurrent.ExecutionException.class,
              () -> future.get(10, TimeUnit.SECONDS));
      assertTrue(e.getCause() instanceof NcclException, e::toString);
    }
  }
}

package io.nccl4j.bench.data;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import java.lang.foreign.MemorySegment;

/** Device memory that is an array, for tests without a runtime. */
final class FakeBuffer implements DeviceBuffer {
  private final MemorySegment memory;

  FakeBuffer(long bytes) {
    // An array of longs, so that every element type is aligned.
    this(MemorySegment.ofArray(new long[(int) (bytes / 8 + 1)]).asSlice(0, bytes));
  }

  private FakeBuffer(MemorySegment memory) {
    this.memory = memory;
  }

  MemorySegment memory() {
    return memory;
  }

  @Override
  public Device device() {
    throw new UnsupportedOperationException();
  }

  @Override
  public long address() {
    throw new UnsupportedOperationException();
  }

  @Override
  public long byteSize() {
    return memory.byteSize();
  }

  @Override
  public DeviceBuffer slice(long byteOffset, long byteSize) {
    return new FakeBuffer(memory.asSlice(byteOffset, byteSize));
  }

  @Override
  public void copyFrom(Object array) {
    MemorySegment source = segment(array);
    MemorySegment.copy(source, 0, memory, 0, source.byteSize());
  }

  @Override
  public void copyTo(Object array) {
    MemorySegment target = segment(array);
    MemorySegment.copy(memory, 0, target, 0, target.byteSize());
  }

  private static MemorySegment segment(Object array) {
    return switch (array) {
      case byte[] a -> MemorySegment.ofArray(a);
      case short[] a -> MemorySegment.ofArray(a);
      case int[] a -> MemorySegment.ofArray(a);
      case long[] a -> MemorySegment.ofArray(a);
      default -> throw new IllegalArgumentException(array.getClass().getName());
    };
  }

  @Override
  public boolean isQuiet() {
    return true;
  }

  @Override
  public boolean isClosed() {
    return false;
  }

  @Override
  public void close() {}
}

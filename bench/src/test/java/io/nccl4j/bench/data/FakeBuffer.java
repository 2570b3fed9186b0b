package io.nccl4j.bench.data;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import java.lang.foreign.MemorySegment;
import java.util.Optional;

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
  public void copyFrom(MemorySegment source) {
    MemorySegment.copy(source, 0, memory, 0, source.byteSize());
  }

  @Override
  public void copyTo(MemorySegment target) {
    MemorySegment.copy(memory, 0, target, 0, target.byteSize());
  }

  @Override
  public Optional<MemorySegment> hostSegment() {
    return Optional.of(memory);
  }

  @Override
  public boolean isQuiet() {
    return true;
  }

  @Override
  public boolean isReadOnly() {
    return memory.isReadOnly();
  }

  @Override
  public boolean isClosed() {
    return false;
  }

  @Override
  public void close() {}
}

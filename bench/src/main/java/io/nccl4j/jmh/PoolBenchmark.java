package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPool;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * A buffer of a pool that is allocated and closed, and for comparison malloc and free of the C
 * library, called through the foreign function interface. Nothing touches the memory, whose first
 * use costs more where it was fresh. With {@code -prof gc} the pool allocates no Java heap.
 */
@SuppressWarnings("restricted") // malloc is called for comparison
public class PoolBenchmark extends HostBenchmark {
  private static final Linker LINKER = Linker.nativeLinker();
  private static final MethodHandle MALLOC =
      LINKER.downcallHandle(
          LINKER.defaultLookup().find("malloc").orElseThrow(),
          FunctionDescriptor.of(ValueLayout.ADDRESS, ValueLayout.JAVA_LONG));
  private static final MethodHandle FREE =
      LINKER.downcallHandle(
          LINKER.defaultLookup().find("free").orElseThrow(),
          FunctionDescriptor.ofVoid(ValueLayout.ADDRESS));

  /** Size in bytes. */
  @Param({"256", "4096", "1048576", "67108864"})
  public long bytes;

  private MemoryPool pool;
  private Stream stream;

  /** Makes the pool. */
  @Setup
  public void open() {
    Device device = Device.get(Backend.HOST, 0);
    device.bindThread();
    pool = MemoryPool.create(device);
    stream = device.newStream();
  }

  /** Gives everything back. */
  @TearDown
  public void close() {
    stream.close();
    pool.close();
  }

  /** One buffer of the pool; returns its address. */
  @Benchmark
  public long pool() {
    DeviceBuffer buffer = pool.allocate(bytes, stream);
    long address = buffer.address();
    buffer.close();
    return address;
  }

  /** malloc and free; returns the address. */
  @Benchmark
  public long malloc() throws Throwable {
    MemorySegment memory = (MemorySegment) MALLOC.invokeExact(bytes);
    FREE.invokeExact(memory);
    return memory.address();
  }

  /** Buffers of the pool so far, and what it holds. */
  long[] allocationsAndReservedBytes() {
    return new long[] {pool.statistics().allocations(), pool.statistics().reservedBytes()};
  }
}

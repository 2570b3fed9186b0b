package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPool;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * A buffer that is allocated and closed in the order of a stream of a GPU: of a pool, and for
 * comparison cuMemAllocAsync and cuMemFreeAsync of the driver, whose pool keeps all memory, too.
 * There is no work on the stream. It needs a GPU, and says so where there is none.
 */
@SuppressWarnings("restricted") // the driver is called for comparison
public class GpuPoolBenchmark extends HostBenchmark {
  private static final int RELEASE_THRESHOLD = 4;
  private static final int NON_BLOCKING = 1;

  /** Size in bytes. */
  @Param({"256", "4096", "1048576", "67108864"})
  public long bytes;

  private MemoryPool pool;
  private Stream stream;
  private MethodHandle allocateAsync;
  private MethodHandle freeAsync;
  private MemorySegment driverStream;
  private MemorySegment out;

  /**
   * Makes the pool, and a stream of the driver.
   *
   * @throws IllegalStateException if there is no GPU
   */
  @Setup
  public void open() throws Throwable {
    BackendInfo info = Backend.CUDA.info();
    if (!info.isUsable()) {
      throw new IllegalStateException("needs a GPU: " + info.problem());
    }
    Device device = Device.get(Backend.CUDA, 0);
    device.bindThread();
    pool = MemoryPool.create(device);
    stream = device.newStream();
    out = Arena.global().allocate(ValueLayout.JAVA_LONG);
    driver(
        info.libraries().stream()
            .filter(library -> library.name().contains("cuda"))
            .findFirst()
            .orElseThrow()
            .path());
  }

  private void driver(String path) throws Throwable {
    SymbolLookup symbols = SymbolLookup.libraryLookup(path, Arena.global());
    // The device's own context, which the pool uses, too; number 0 is the first device.
    call(symbols, "cuDevicePrimaryCtxRetain", out, 0);
    MemorySegment context = MemorySegment.ofAddress(out.get(ValueLayout.JAVA_LONG, 0));
    call(symbols, "cuCtxSetCurrent", context);
    call(symbols, "cuDeviceGetDefaultMemPool", out, 0);
    MemorySegment defaultPool = MemorySegment.ofAddress(out.get(ValueLayout.JAVA_LONG, 0));
    out.set(ValueLayout.JAVA_LONG, 0, -1L);
    call(symbols, "cuMemPoolSetAttribute", defaultPool, RELEASE_THRESHOLD, out);
    call(symbols, "cuStreamCreate", out, NON_BLOCKING);
    driverStream = MemorySegment.ofAddress(out.get(ValueLayout.JAVA_LONG, 0));
    allocateAsync =
        handle(
            symbols,
            "cuMemAllocAsync",
            FunctionDescriptor.of(
                ValueLayout.JAVA_INT,
                ValueLayout.ADDRESS,
                ValueLayout.JAVA_LONG,
                ValueLayout.ADDRESS));
    freeAsync =
        handle(
            symbols,
            "cuMemFreeAsync",
            FunctionDescriptor.of(
                ValueLayout.JAVA_INT, ValueLayout.JAVA_LONG, ValueLayout.ADDRESS));
  }

  private static MethodHandle handle(
      SymbolLookup symbols, String name, FunctionDescriptor descriptor) {
    return Linker.nativeLinker().downcallHandle(symbols.find(name).orElseThrow(), descriptor);
  }

  /** Calls a function of pointers and ints. */
  private static void call(SymbolLookup symbols, String name, Object... arguments)
      throws Throwable {
    FunctionDescriptor descriptor = FunctionDescriptor.of(ValueLayout.JAVA_INT);
    for (Object argument : arguments) {
      descriptor =
          descriptor.appendArgumentLayouts(
              argument instanceof Integer ? ValueLayout.JAVA_INT : ValueLayout.ADDRESS);
    }
    check((int) handle(symbols, name, descriptor).invokeWithArguments(arguments), name);
  }

  private static void check(int result, String name) {
    if (result != 0) {
      throw new IllegalStateException(name + " failed with " + result);
    }
  }

  /** Gives the pool back; the driver's goes with the process. */
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

  /** cuMemAllocAsync and cuMemFreeAsync; returns the address. */
  @Benchmark
  public long driver() throws Throwable {
    check((int) allocateAsync.invokeExact(out, bytes, driverStream), "cuMemAllocAsync");
    long address = out.get(ValueLayout.JAVA_LONG, 0);
    check((int) freeAsync.invokeExact(address, driverStream), "cuMemFreeAsync");
    return address;
  }
}

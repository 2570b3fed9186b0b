package io.nccl4j.internal.cuda.module;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.Stream;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.KernelArgument;
import io.nccl4j.internal.schedule.ScheduledStream;
import io.nccl4j.internal.spi.Resource;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A kernel; CUDA's function belongs to the module. */
@SuppressWarnings("try") // a scope is entered, not used
public final class PtxKernel implements CudaKernel {
  private static final int MAX_GRID_YZ = 65_535;

  /** Room and alignment of an argument: those of the largest number. */
  private static final long ALIGNMENT = 16;

  private final PtxModule module;
  private final String name;
  private final PtxSignature signature;
  private final MemorySegment function;
  private final int maxThreads;

  private PtxKernel(
      PtxModule module,
      String name,
      PtxSignature signature,
      MemorySegment function,
      int maxThreads) {
    this.module = module;
    this.name = name;
    this.signature = signature;
    this.function = function;
    this.maxThreads = maxThreads;
  }

  /** A run of a kernel as a stream or graph holds it: what must stay open until it has run. */
  public record Run(PtxKernel kernel, List<Resource> uses) implements Resource {
    @Override
    public boolean isPartOf(Object whole) {
      return kernel.module == whole || uses.stream().anyMatch(used -> used.isPartOf(whole));
    }

    @Override
    public boolean isClosed() {
      return kernel.module.isClosed() || uses.stream().anyMatch(Resource::isClosed);
    }

    @Override
    public void capture() {
      uses.forEach(Resource::capture);
    }

    /** How messages name it. */
    public String describe() {
      return "kernel " + kernel.name;
    }
  }

  static PtxKernel of(
      PtxModule module, String name, PtxSignature signature, MemorySegment moduleHandle) {
    try (Gpu.Scope ignored = module.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      Driver.check(
          Cuda.cuModuleGetFunction(out, moduleHandle, arena.allocateFrom(name)),
          "cuModuleGetFunction");
      MemorySegment function = out.get(ValueLayout.ADDRESS, 0);
      MemorySegment value = arena.allocate(ValueLayout.JAVA_INT);
      Driver.check(
          Cuda.cuFuncGetAttribute(value, Cuda.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK(), function),
          "cuFuncGetAttribute");
      return new PtxKernel(module, name, signature, function, value.get(ValueLayout.JAVA_INT, 0));
    }
  }

  @Override
  public CudaModule module() {
    return module;
  }

  @Override
  public String name() {
    return name;
  }

  @Override
  public int maxThreadsPerBlock() {
    return maxThreads;
  }

  @Override
  public void launch(
      @Nullable Stream stream,
      @Nullable Dim grid,
      @Nullable Dim block,
      int sharedBytes,
      Object... arguments) {
    module.requireOpen();
    ScheduledStream<?> scheduled = requireStream(stream);
    KernelStream own = (KernelStream) scheduled.engine();
    if (grid == null || block == null || arguments == null) {
      throw new InvalidArgumentException(
          "launch: the grid, the block or the array of arguments is null", "pass all");
    }
    requireShape(grid, block, sharedBytes);
    signature.requireFitting(name, arguments);
    List<Resource> uses = uses(arguments);
    scheduled.awaitRoom();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment values = values(arguments, arena);
      own.run(
          new Run(this, uses),
          () ->
              Cuda.cuLaunchKernel(
                  function,
                  grid.x(),
                  grid.y(),
                  grid.z(),
                  block.x(),
                  block.y(),
                  block.z(),
                  sharedBytes,
                  own.handle(),
                  values,
                  MemorySegment.NULL));
    }
  }

  private ScheduledStream<?> requireStream(@Nullable Stream stream) {
    if (!(stream instanceof ScheduledStream<?> own) || !(own.engine() instanceof KernelStream)) {
      throw new InvalidArgumentException(
          "launch: the stream is " + (stream == null ? "null" : "not of a cuda device"),
          "pass a cuda stream");
    }
    if (own.device() != module.device()) {
      throw new InvalidArgumentException(
          "launch: the stream is on " + own.device() + ", the module on " + module.device(),
          "load the module on the stream's device, too");
    }
    return own;
  }

  private void requireShape(Dim grid, Dim block, int sharedBytes) {
    if (grid.y() > MAX_GRID_YZ || grid.z() > MAX_GRID_YZ) {
      throw new InvalidArgumentException(
          "launch: the grid is " + grid, "y and z are at most " + MAX_GRID_YZ);
    }
    if ((double) block.x() * block.y() * block.z() > maxThreads) {
      throw new InvalidArgumentException(
          "launch: the block is " + block,
          "a block of kernel " + name + " has at most " + maxThreads + " threads");
    }
    if (sharedBytes < 0 || sharedBytes > MAX_SHARED_BYTES) {
      throw new InvalidArgumentException(
          "launch: " + sharedBytes + " bytes of shared memory", "ask for 0 to " + MAX_SHARED_BYTES);
    }
  }

  private List<Resource> uses(Object[] arguments) {
    List<Resource> uses = new ArrayList<>();
    for (Object argument : arguments) {
      if (argument instanceof KernelArgument own) {
        if (own.device() != module.device()) {
          throw new InvalidArgumentException(
              "launch: "
                  + own.describe()
                  + " is of "
                  + own.device()
                  + ", the kernel on "
                  + module.device(),
              "pass what is of the kernel's device");
        }
        own.requireUsable();
        uses.add(own);
      }
      if (argument instanceof DeviceBuffer buffer) {
        if (!(buffer instanceof CudaBuffer own) || own.device() != module.device()) {
          throw new InvalidArgumentException(
              "launch: a buffer is on " + buffer.device() + ", the kernel on " + module.device(),
              "pass buffers of the kernel's device; of another one, that it can reach, the"
                  + " address");
        }
        own.requireOpen();
        uses.add(own);
      }
    }
    return uses;
  }

  /** Pointers to the arguments' values, and behind them the values. */
  private static MemorySegment values(Object[] arguments, Arena arena) {
    long pointers = aligned((long) arguments.length * Long.BYTES);
    long bytes = pointers;
    for (Object argument : arguments) {
      bytes += aligned(size(argument));
    }
    MemorySegment all = arena.allocate(Math.max(bytes, ALIGNMENT), ALIGNMENT);
    long at = pointers;
    for (int i = 0; i < arguments.length; i++) {
      all.setAtIndex(ValueLayout.JAVA_LONG, i, all.address() + at);
      write(arguments[i], all, at);
      at += aligned(size(arguments[i]));
    }
    return all;
  }

  private static long aligned(long bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }

  private static long size(Object argument) {
    return switch (argument) {
      case MemorySegment structure -> structure.byteSize();
      case KernelArgument own when own.isStructure() -> own.value().byteSize();
      default -> Long.BYTES;
    };
  }

  private static void write(Object argument, MemorySegment to, long at) {
    switch (argument) {
      case MemorySegment structure ->
          MemorySegment.copy(structure, 0, to, at, structure.byteSize());
      case KernelArgument own when own.isStructure() ->
          MemorySegment.copy(own.value(), 0, to, at, own.value().byteSize());
      case KernelArgument own -> to.set(ValueLayout.ADDRESS, at, own.value());
      case DeviceBuffer buffer -> to.set(ValueLayout.JAVA_LONG, at, buffer.address());
      case Byte number -> to.set(ValueLayout.JAVA_BYTE, at, number);
      case Short number -> to.set(ValueLayout.JAVA_SHORT, at, number);
      case Integer number -> to.set(ValueLayout.JAVA_INT, at, number);
      case Long number -> to.set(ValueLayout.JAVA_LONG, at, number);
      case Float number -> to.set(ValueLayout.JAVA_FLOAT, at, number);
      case Double number -> to.set(ValueLayout.JAVA_DOUBLE, at, number);
      default -> throw new IllegalStateException("checked before: " + argument);
    }
  }

  @Override
  public String toString() {
    return "kernel " + name + signature;
  }
}

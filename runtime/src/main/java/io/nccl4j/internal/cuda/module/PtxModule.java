package io.nccl4j.internal.cuda.module;

import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.cuda.CudaException;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.PtxException;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.GpuDevice;
import io.nccl4j.internal.cuda.memory.MemoryUsers;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.HashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** A module that the driver compiled. It owns CUDA's module until it is closed. */
@SuppressWarnings("try") // a scope is entered, not used
public final class PtxModule implements CudaModule {
  private static final int INVALID_IMAGE = 200;
  private static final int NO_BINARY_FOR_GPU = 209;
  private static final int INVALID_PTX = 218;
  private static final int COMPILER_NOT_FOUND = 221;
  private static final int UNSUPPORTED_PTX_VERSION = 222;
  private static final int LOG_BYTES = 16 << 10;

  private final GpuDevice device;
  private final MemoryUsers users;
  private final MemorySegment handle;
  private final Map<String, PtxSignature> signatures;
  private final Map<String, PtxKernel> kernels = new HashMap<>();
  private volatile boolean closed;

  private PtxModule(
      GpuDevice device,
      MemoryUsers users,
      MemorySegment handle,
      Map<String, PtxSignature> signatures) {
    this.device = device;
    this.users = users;
    this.handle = handle;
    this.signatures = signatures;
  }

  /**
   * Has the driver compile a module.
   *
   * @param users what uses it until it is closed
   */
  public static PtxModule load(GpuDevice device, MemoryUsers users, @Nullable String ptx) {
    if (ptx == null) {
      throw new InvalidArgumentException("loadModule: the PTX is null", "pass PTX text");
    }
    try (Gpu.Scope ignored = device.gpu().enter();
        Arena arena = Arena.ofConfined()) {
      MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
      MemorySegment log = arena.allocate(LOG_BYTES);
      MemorySegment options =
          arena.allocateFrom(
              ValueLayout.JAVA_INT,
              Cuda.CU_JIT_ERROR_LOG_BUFFER(),
              Cuda.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES());
      // CUDA takes the size itself where it takes the buffer's pointer.
      MemorySegment values =
          arena.allocateFrom(ValueLayout.JAVA_LONG, log.address(), LOG_BYTES - 1);
      int result = Cuda.cuModuleLoadDataEx(out, arena.allocateFrom(ptx), 2, options, values);
      if (result != Driver.SUCCESS) {
        throw failure(result, device, log.getString(0).strip());
      }
      return new PtxModule(device, users, out.get(ValueLayout.ADDRESS, 0), PtxSignature.parse(ptx));
    }
  }

  private static NcclException failure(int result, Device device, String log) {
    NcclException cause = Driver.failure(result, "cuModuleLoadDataEx");
    if (result == COMPILER_NOT_FOUND) {
      return new CudaException(
          result,
          Driver.text(result, true),
          cause.problem(),
          "install libnvidia-ptxjitcompiler.so.1, which belongs to the driver");
    }
    String remedy =
        switch (result) {
          case UNSUPPORTED_PTX_VERSION ->
              "update NVIDIA's driver, or compile with a toolkit that is not newer than it";
          case NO_BINARY_FOR_GPU -> "compile for a .target that is not newer than the device";
          case INVALID_PTX, INVALID_IMAGE -> "pass the text that nvcc -ptx, clang or NVRTC writes";
          default -> "";
        };
    if (remedy.isEmpty()) {
      return cause;
    }
    return new PtxException(
            "the driver's compiler refuses the PTX for "
                + device
                + " with "
                + Driver.text(result, true)
                + (log.isEmpty() ? "" : ": " + log),
            remedy,
            log)
        .causedBy(cause);
  }

  @Override
  public Device device() {
    return device;
  }

  Gpu gpu() {
    return device.gpu();
  }

  @Override
  public synchronized CudaKernel kernel(@Nullable String name) {
    requireOpen();
    PtxSignature signature = name == null ? null : signatures.get(name);
    if (name == null || signature == null) {
      throw new InvalidArgumentException(
          "the module has no kernel " + name,
          signatures.isEmpty()
              ? "it has none"
              : "it has " + String.join(", ", signatures.keySet()));
    }
    return kernels.computeIfAbsent(name, ignored -> PtxKernel.of(this, name, signature, handle));
  }

  boolean isClosed() {
    return closed;
  }

  void requireOpen() {
    if (closed) {
      throw new InvalidUsageException(
          "the module is closed", "keep modules open until the last launch of their kernels");
    }
  }

  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    String user = users.userOf(this);
    if (user != null) {
      throw new InvalidUsageException(
          "the module is in use by " + user, "synchronize the stream before closing the module");
    }
    closed = true;
    try (Gpu.Scope ignored = device.gpu().enter()) {
      Driver.check(Cuda.cuModuleUnload(handle), "cuModuleUnload");
    }
  }
}

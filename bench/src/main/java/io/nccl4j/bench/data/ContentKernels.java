package io.nccl4j.bench.data;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Stream;
import io.nccl4j.bench.Closing;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaModule;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The kernels that write and check contents on GPUs, so that data need not go through the host;
 * their source lies in {@code src/main/kernels}. A device is prepared at its first use. Used by one
 * thread.
 */
public final class ContentKernels implements AutoCloseable {
  private static final String PTX = "contents.ptx";
  private static final CudaKernel.Dim BLOCK = new CudaKernel.Dim(256);

  /** Fills the largest of GPUs; further elements are the threads' second ones and so on. */
  private static final long MAX_BLOCKS = 2048;

  /** No element is wrong, so that every index is smaller than that of the first. */
  private static final long[] NONE_WRONG = {0, -1};

  private final Map<Device, Gpu> gpus = new HashMap<>();

  /** The kernels on a device; null if it runs none. */
  @Nullable Gpu on(Device device) {
    return device.backend() == Backend.CUDA ? gpus.computeIfAbsent(device, Gpu::new) : null;
  }

  /** Closes what the devices hold. Their streams must be able to end. */
  @Override
  public void close() {
    Closing.all(List.copyOf(gpus.values()));
    gpus.clear();
  }

  /** The kernels on one device, and what they need there. It owns all of it. */
  static final class Gpu implements AutoCloseable {
    private final List<AutoCloseable> owned = new ArrayList<>();
    private final CudaModule module;
    private final Stream stream;
    private final DeviceBuffer table;
    private final DeviceBuffer counters;

    Gpu(Device device) {
      try {
        module = CudaDevice.of(device).loadModule(Ptx.read(PTX));
        owned.add(module);
        stream = device.newStream();
        owned.add(stream);
        table = device.allocate(DataType.INT64, Pattern.COLUMNS);
        owned.add(table);
        counters = device.allocate(DataType.INT64, NONE_WRONG.length);
        owned.add(counters);
      } catch (RuntimeException e) {
        closeAfter(e);
        throw e;
      }
    }

    private void closeAfter(RuntimeException failure) {
      try {
        close();
      } catch (RuntimeException e) {
        failure.addSuppressed(e);
      }
    }

    /** Writes a block to all of {@code part}. */
    void write(DeviceBuffer part, Block block, boolean invert) {
      launch("write", part, block, invert ? -1L : 0L);
    }

    /** Compares all of {@code part} with a block. */
    Wrong check(DeviceBuffer part, Block block) {
      Pattern pattern = block.pattern();
      counters.copyFrom(NONE_WRONG);
      launch("check", part, block, (long) pattern.tolerance(), counters);
      long[] found = counters.toLongs();
      if (found[0] == 0) {
        return Wrong.NOTHING;
      }
      int bytes = pattern.type().byteSize();
      Object element = Elements.newArray(pattern.type(), 1);
      try (DeviceBuffer first = part.slice(found[1] * bytes, bytes)) {
        first.copyTo(element);
      }
      return new Wrong(
          found[0],
          found[1],
          Elements.bits(element, 0) & Elements.mask(pattern.type()),
          pattern.at(block.first() + found[1]));
    }

    private void launch(String kernel, DeviceBuffer part, Block block, Object... more) {
      Pattern pattern = block.pattern();
      table.copyFrom(pattern.table());
      List<Object> arguments =
          new ArrayList<>(List.of(part, table, block.first() + pattern.seed(), block.count()));
      arguments.addAll(List.of(more));
      long blocks = Math.min(MAX_BLOCKS, (block.count() + BLOCK.x() - 1) / BLOCK.x());
      module
          .kernel("nccl4j_" + kernel + 8 * pattern.type().byteSize())
          .launch(stream, new CudaKernel.Dim((int) blocks), BLOCK, 0, arguments.toArray());
      stream.synchronize();
    }

    @Override
    public void close() {
      Closing.all(owned);
    }
  }
}

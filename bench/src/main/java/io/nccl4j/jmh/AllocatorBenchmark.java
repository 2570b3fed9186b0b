package io.nccl4j.jmh;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.TearDown;

/**
 * Taking and giving back device memory, with other buffers around. The Java object of a buffer is
 * what {@code -prof gc} shows.
 */
public class AllocatorBenchmark extends HostBenchmark {
  private static final int OTHERS = 64;

  /** Bytes of a buffer. */
  @Param({"64", "65536", "16777216"})
  public long bytes;

  /** The backend's label. */
  @Param("host")
  public String backend;

  private Device device;
  private final DeviceBuffer[] others = new DeviceBuffer[OTHERS];

  /** Makes other buffers, with gaps between them that are too small. */
  @Setup
  public void open() {
    device = Device.get(Backend.ofLabel(backend), 0);
    DeviceBuffer[] gaps = new DeviceBuffer[OTHERS];
    for (int i = 0; i < OTHERS; i++) {
      others[i] = device.allocate(64);
      gaps[i] = device.allocate(64);
    }
    for (DeviceBuffer gap : gaps) {
      gap.close();
    }
  }

  /** Frees them. */
  @TearDown
  public void close() {
    for (DeviceBuffer other : others) {
      other.close();
    }
  }

  /** One buffer; returns its address, which is 0 for none. */
  @Benchmark
  public long allocateAndFree() {
    try (DeviceBuffer buffer = device.allocate(bytes)) {
      return buffer.address();
    }
  }
}

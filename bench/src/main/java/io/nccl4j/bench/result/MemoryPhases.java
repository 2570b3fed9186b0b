package io.nccl4j.bench.result;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Device;
import io.nccl4j.memory.MemoryReport;
import java.util.List;

/**
 * What a run took of the memory of a device, in bytes, the most of all devices of the process with
 * rank 0: on {@code cuda} by what the driver says is free, the work of others included, on the host
 * by what nccl4j has booked.
 *
 * @param initialization for communicators and streams, and on {@code cuda} for CUDA itself
 * @param user send and receive buffers
 * @param collective what operations took later
 */
public record MemoryPhases(long initialization, long user, long collective) {
  /** All of it. */
  public long total() {
    return initialization + user + collective;
  }

  /** Looks at the devices of a process three times; each time one thread does. */
  public static final class Meter {
    private final List<Device> devices;
    private final long[] before;
    private long[] connected;

    /** Looks for the first time, before communicators are made. */
    public Meter(List<Device> devices) {
      this.devices = devices;
      this.before = taken();
      this.connected = before;
    }

    /** Looks when all ranks have their communicators and buffers. */
    public void connected() {
      connected = taken();
    }

    /**
     * Looks at the end.
     *
     * @param userBytes buffers of all ranks of the process
     */
    public MemoryPhases finished(long userBytes) {
      long user = userBytes / devices.size();
      long[] after = taken();
      long initialization = 0;
      long collective = 0;
      for (int i = 0; i < after.length; i++) {
        initialization = Math.max(initialization, connected[i] - before[i] - user);
        collective = Math.max(collective, after[i] - connected[i]);
      }
      return new MemoryPhases(initialization, user, collective);
    }

    private long[] taken() {
      return devices.stream().mapToLong(MemoryPhases::taken).toArray();
    }
  }

  private static long taken(Device device) {
    if (device.backend() == Backend.HOST) {
      return MemoryReport.of(device).lines().stream().mapToLong(MemoryReport.Line::bytes).sum();
    }
    BackendInfo.DeviceInfo info = device.backend().info().devices().get(device.ordinal());
    return info.memoryBytes() - info.freeBytes();
  }
}

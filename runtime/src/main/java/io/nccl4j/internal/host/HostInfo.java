package io.nccl4j.internal.host;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.Feature;
import io.nccl4j.bindings.Libc;
import io.nccl4j.internal.host.engine.Tuning;
import io.nccl4j.internal.host.kernel.Kernels;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.host.memory.HostHeap;
import io.nccl4j.internal.machine.Affinity;
import io.nccl4j.internal.machine.Machine;
import java.util.List;

/** What the host backend found on this machine. */
final class HostInfo {
  private static final String VECTOR = "Vector API";
  private static final String NETTY = "io/netty/channel/nio/NioIoHandler.class";

  private HostInfo() {}

  static BackendInfo collect() {
    boolean libc = Libc.isAvailable();
    String restriction = libc ? "" : Libc.unavailableReason();
    String kernels = Kernels.description();
    boolean vector = kernels.startsWith(VECTOR);
    return new BackendInfo(
        Backend.HOST,
        "",
        "",
        List.of(),
        List.of(),
        List.of(
            new BackendInfo.FeatureInfo(Feature.THREAD_RANKS, true, "nothing", ""),
            new BackendInfo.FeatureInfo(
                Feature.PROCESS_RANKS, libc, "native access on Linux", restriction),
            network(),
            new BackendInfo.FeatureInfo(
                Feature.BOUND_THREADS,
                Affinity.bindable() > 0,
                "native access on Linux",
                Affinity.bindable() > 0 ? "" : restriction),
            new BackendInfo.FeatureInfo(
                Feature.VECTOR_REDUCTIONS,
                vector,
                "--add-modules jdk.incubator.vector",
                vector ? "" : "they use " + kernels)),
        List.of(
            new BackendInfo.Fact("processor", Machine.processorName()),
            new BackendInfo.Fact(
                "processors",
                Machine.PROCESSORS
                    + (libc ? ", threads can be bound to " + Affinity.bindable() : "")),
            new BackendInfo.Fact(
                "heap",
                libc
                    ? "memory file (memfd), room for "
                        + (HostHeap.shareableBytes() >> 20)
                        + " MiB, pages only where used"
                    : "an arena per buffer, for the threads of this process"),
            new BackendInfo.Fact("reductions", kernels),
            new BackendInfo.Fact("tuning", "measured on " + Tuning.machine()),
            new BackendInfo.Fact(
                "ranks",
                "1 to " + Layout.MAX_RANKS + " a communicator, on one machine or several")));
  }

  /** Looks for the file, and loads nothing: who stays on one machine pays nothing for others. */
  private static BackendInfo.FeatureInfo network() {
    boolean found = HostInfo.class.getClassLoader().getResource(NETTY) != null;
    return new BackendInfo.FeatureInfo(
        Feature.NETWORK_RANKS,
        found,
        "Netty 4.2 (io.netty:netty-transport)",
        found ? "" : "Netty is not on the class path or module path");
  }
}

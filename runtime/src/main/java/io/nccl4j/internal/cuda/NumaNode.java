package io.nccl4j.internal.cuda;

import io.nccl4j.bindings.Processors;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;

/** The processors that are close to a GPU. */
final class NumaNode {
  private NumaNode() {}

  /** Binds the calling thread to them; false if the system does not say which they are. */
  static boolean bindThread(CudaDevice device) {
    if (Thread.currentThread().isVirtual()) {
      return false;
    }
    Path list = Path.of("/sys/bus/pci/devices", device.pciAddress(), "local_cpulist");
    BitSet close;
    try {
      close = parse(Files.readString(list).strip());
    } catch (IOException | NumberFormatException e) {
      // A container or virtual machine without that part of sysfs.
      return false;
    }
    close.and(Processors.schedGetaffinity());
    if (close.isEmpty()) {
      return false;
    }
    Processors.schedSetaffinity(close);
    return true;
  }

  /** Moves the calling thread to them if it may use them, and leaves it as free as it was. */
  static void placeThread(CudaDevice device) {
    if (!Thread.currentThread().isVirtual()) {
      BitSet allowed = Processors.schedGetaffinity();
      if (bindThread(device)) {
        Processors.schedSetaffinity(allowed);
      }
    }
  }

  /** Linux's list format, for example {@code 0-15,64-79}. */
  static BitSet parse(String list) {
    BitSet processors = new BitSet();
    for (String part : list.split(",")) {
      int dash = part.indexOf('-');
      int first = Integer.parseInt(dash < 0 ? part : part.substring(0, dash));
      int last = Integer.parseInt(part.substring(dash + 1));
      processors.set(first, last + 1);
    }
    return processors;
  }
}

package io.nccl4j.internal.machine;

import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Processors;
import java.util.BitSet;

/** On which processors threads run. Virtual threads stay where they are. */
public final class Affinity {
  /** What this process may use. */
  private static final BitSet ALLOWED = allowed();

  private Affinity() {}

  private static BitSet allowed() {
    return Libc.isAvailable() ? Processors.schedGetaffinity() : new BitSet();
  }

  /**
   * Binds the calling thread to one of the processors this process may use; false if that is not
   * possible.
   */
  public static boolean bindThread(int index) {
    if (!canMove()) {
      return false;
    }
    Processors.schedSetaffinity(one(ALLOWED, index));
    return true;
  }

  /**
   * Moves the calling thread to one of the processors it may use, and leaves it as free as it was:
   * threads that it starts, of pools of the whole process perhaps, inherit what it may use.
   */
  public static void placeThread(int index) {
    if (canMove()) {
      BitSet allowed = Processors.schedGetaffinity();
      Processors.schedSetaffinity(one(allowed, index));
      Processors.schedSetaffinity(allowed);
    }
  }

  /**
   * Lets the calling thread, which may have been started by a bound one, use all processors of this
   * process.
   */
  public static void unbindThread() {
    if (!ALLOWED.isEmpty()) {
      Processors.schedSetaffinity(ALLOWED);
    }
  }

  /** Processors that threads can be bound to; 0 if they cannot. */
  public static int bindable() {
    return ALLOWED.cardinality();
  }

  /**
   * Binds the calling thread to the processors that are close to a device; false if the system does
   * not say which they are, or the thread may use none of them.
   *
   * @param pciAddress of the device, for example {@code 0000:3b:00.0}
   */
  public static boolean bindThreadNear(String pciAddress) {
    if (!canMove()) {
      return false;
    }
    BitSet close =
        parse(
            MachineFiles.here()
                .text("/sys/bus/pci/devices/" + pciAddress + "/local_cpulist")
                .strip());
    close.and(Processors.schedGetaffinity());
    if (close.isEmpty()) {
      return false;
    }
    Processors.schedSetaffinity(close);
    return true;
  }

  /** Moves the calling thread there if it may use them, and leaves it as free as it was. */
  public static void placeThreadNear(String pciAddress) {
    if (canMove()) {
      BitSet allowed = Processors.schedGetaffinity();
      if (bindThreadNear(pciAddress)) {
        Processors.schedSetaffinity(allowed);
      }
    }
  }

  private static boolean canMove() {
    return !ALLOWED.isEmpty() && !Thread.currentThread().isVirtual();
  }

  private static BitSet one(BitSet of, int index) {
    BitSet one = new BitSet();
    one.set(of.stream().skip(index % of.cardinality()).findFirst().orElseThrow());
    return one;
  }

  /** Linux's list format, for example {@code 0-15,64-79}; none where it is not that. */
  static BitSet parse(String list) {
    BitSet processors = new BitSet();
    for (String part : list.split(",")) {
      int dash = part.indexOf('-');
      try {
        int first = Integer.parseInt(dash < 0 ? part : part.substring(0, dash));
        int last = Integer.parseInt(part.substring(dash + 1));
        processors.set(first, last + 1);
      } catch (NumberFormatException e) {
        // A container or virtual machine without that part of sysfs.
        return new BitSet();
      }
    }
    return processors;
  }
}

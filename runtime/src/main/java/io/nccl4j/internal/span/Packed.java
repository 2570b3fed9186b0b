package io.nccl4j.internal.span;

import io.nccl4j.internal.host.kernel.Copies;
import java.lang.foreign.MemorySegment;

/** Memory in which the inputs of this host's ranks lie side by side, to be sent as one transfer. */
final class Packed {
  private final Wire.Frames memory;

  /** For so many windows, by their slots. */
  Packed(Span span, int windows) {
    memory = span.memory(windows * WindowPlan.PACKED_BYTES);
  }

  /** Adds the input of the rank at a place, of so many bytes. */
  void add(Window window, int place, MemorySegment from, long offset, long bytes) {
    Copies.copy(from, offset, memory.segment(), start(window) + place * bytes, bytes);
  }

  /** Lets a transfer send them all. */
  void fill(Transfer t, Window window) {
    t.memory = memory.segment();
    t.offset = start(window);
  }

  private long start(Window window) {
    return memory.offset() + window.slot * WindowPlan.PACKED_BYTES;
  }
}

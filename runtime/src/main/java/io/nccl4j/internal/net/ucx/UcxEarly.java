package io.nccl4j.internal.net.ucx;

import io.nccl4j.bindings.MemoryAccess;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;

/** Messages from ports that have no number yet. */
final class UcxEarly {
  /** Most bytes that are kept. */
  private static final long MOST_BYTES = 1 << 20;

  /** One message, in the order in which they came. */
  record Message(long sender, long number, long tag, byte[] content) {}

  private final List<Message> all = new ArrayList<>();
  private long bytes;

  /**
   * Keeps a message. Where there is no room for it, it is lost, and the next message of its sender
   * is out of order, which fails the sender as soon as it is known.
   */
  void keep(long header, long data, long length) {
    if (bytes + length > MOST_BYTES) {
      return;
    }
    bytes += length;
    byte[] content = new byte[(int) length];
    MemorySegment.copy(
        MemoryAccess.everything(), ValueLayout.JAVA_BYTE, data, content, 0, content.length);
    all.add(
        new Message(
            UcxHeader.sender(header), UcxHeader.number(header), UcxHeader.tag(header), content));
  }

  boolean isFrom(long sender) {
    return all.stream().anyMatch(one -> one.sender == sender);
  }

  /** Takes out what a port has sent. */
  List<Message> take(long sender) {
    List<Message> taken = new ArrayList<>();
    for (Iterator<Message> i = all.iterator(); i.hasNext(); ) {
      Message one = i.next();
      if (one.sender == sender) {
        i.remove();
        bytes -= one.content.length;
        taken.add(one);
      }
    }
    return taken;
  }
}

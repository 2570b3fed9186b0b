package io.nccl4j.internal.host.layout;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.PeerFailedException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.HashSet;
import java.util.Set;
import org.junit.jupiter.api.Test;

/** The layout and its version belong together. */
class LayoutTest {
  private static Struct struct(String part, long bytes, long alignment, int value) {
    Struct struct = new Struct("struct");
    struct.word("first");
    struct.add(part, bytes, alignment);
    struct.value("value", value);
    struct.bytes(8);
    return struct;
  }

  @Test
  void anyChangeOfALayoutChangesItsVersion() {
    Set<Integer> versions = new HashSet<>();
    assertTrue(versions.add(Struct.version(struct("part", 8, 8, 1))));
    assertTrue(versions.add(Struct.version(struct("other", 8, 8, 1))), "a part of another name");
    assertTrue(versions.add(Struct.version(struct("part", 16, 8, 1))), "a larger part");
    assertTrue(
        versions.add(Struct.version(struct("part", 8, 16, 1))), "a part that lies elsewhere");
    assertTrue(versions.add(Struct.version(struct("part", 8, 8, 2))), "another flag or number");
    Struct more = struct("part", 8, 8, 1);
    more.word("last");
    assertTrue(versions.add(Struct.version(more)), "one more part");
    assertTrue(versions.add(Struct.version(struct("part", 8, 8, 1), more)), "one more struct");
    assertEquals(Struct.version(struct("part", 8, 8, 1)), Struct.version(struct("part", 8, 8, 1)));
  }

  @Test
  void partsFollowEachOther() {
    Struct struct = new Struct("struct");
    assertEquals(0, struct.word("first"));
    assertEquals(8, struct.word("second"));
    assertEquals(128, struct.add("line", 8, 128));
    assertEquals(136, struct.word("same line"));
    assertEquals(256, struct.bytes(128));
  }

  /** The figures of docs/host-engine.md. */
  @Test
  void aBlockIsAsLargeAsTheDocumentationSays() {
    for (int n : new int[] {1, 2, 16, 256}) {
      assertEquals(4096 + n * 108_416L + n * (long) n * 18_816, ControlBlock.bytes(n));
    }
    assertTrue(Layout.OUTBOX_PAYLOAD + Layout.LINES <= Layout.SHARE_WORD);
    assertTrue(Layout.OUTBOX_PAYLOAD <= 3 * Layout.SHARE_BYTES);
  }

  @Test
  void aBlockOfAnotherVersionIsRefused() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment memory = arena.allocate(ControlBlock.bytes(2), 4096);
      new ControlBlock(memory, 0, 2).format(1, 2, true);
      assertEquals(1, ControlBlock.find(memory, 0, 2, 1).uuidHigh());
      memory.set(ValueLayout.JAVA_LONG, 0, Layout.VERSION + 1);
      PeerFailedException e =
          assertThrows(PeerFailedException.class, () -> ControlBlock.find(memory, 0, 2, 1));
      assertEquals(1, e.rank());
      assertTrue(e.getMessage().contains(Long.toHexString(Layout.VERSION + 1)), e.getMessage());
    }
  }
}

package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.bench.data.Block;
import io.nccl4j.bench.data.Contents;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.data.Wrong;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;

/**
 * Buffers that belong to no operation, between those that do: nobody may change a byte of them.
 * They lie where buffers of earlier episodes were, so that who comes late meets them. One thread
 * uses it.
 */
final class SoakCanaries {
  private static final int MOST = 48;
  private static final int NEW = 6;
  private static final int LARGEST = 256 << 10;
  private static final DataType TYPE = DataType.UINT8;

  private record Canary(DeviceBuffer buffer, List<Block> content) {}

  private final Contents contents = new Contents(TYPE);
  private final List<Canary> all = new ArrayList<>();

  /** What was changed since they were made, in words; nothing if all is well. */
  List<String> check() {
    List<String> changed = new ArrayList<>();
    for (Canary canary : all) {
      Wrong wrong = contents.check(canary.buffer, canary.content);
      if (wrong.count() > 0) {
        changed.add(
            "a buffer of "
                + canary.buffer.byteSize()
                + " B at 0x"
                + Long.toHexString(canary.buffer.address())
                + " that no operation uses was changed: "
                + wrong);
        // Told once.
        contents.write(canary.buffer, canary.content);
      }
    }
    return changed;
  }

  /** Makes some, and closes some if there are many. */
  void renew(Random random, int ranks) {
    while (all.size() > MOST - NEW) {
      all.remove(random.nextInt(all.size())).buffer.close();
    }
    for (int i = 0; i < NEW; i++) {
      int bytes = 1 + random.nextInt(random.nextBoolean() ? LARGEST : 1 << random.nextInt(1, 17));
      Device device = SelfTest.device(Backend.HOST, random.nextInt(ranks));
      DeviceBuffer buffer =
          random.nextInt(4) == 0
              ? device.wrap(Arena.ofAuto().allocate(bytes))
              : device.allocate(bytes);
      adopt(buffer, random);
    }
  }

  /** From now on this one is among them. */
  void adopt(DeviceBuffer buffer, Random random) {
    List<Block> content =
        List.of(new Block(TestData.bits(TYPE, random.nextLong() >>> 8), 0, buffer.byteSize()));
    contents.write(buffer, content);
    all.add(new Canary(buffer, content));
  }

  /** What there is. */
  List<DeviceBuffer> buffers() {
    return all.stream().map(Canary::buffer).toList();
  }

  /** Closes all. */
  void clear() {
    all.forEach(canary -> canary.buffer.close());
    all.clear();
  }
}

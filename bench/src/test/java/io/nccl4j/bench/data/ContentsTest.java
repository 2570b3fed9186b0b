package io.nccl4j.bench.data;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.Tier;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import java.util.SplittableRandom;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class ContentsTest {
  // Several chunks and a part of one.
  private static final long COUNT = 600_001;

  private static List<Block> blocks(DataType type) {
    Pattern reduced = new TestData(type, ReduceOp.Kind.SUM, 3, Backend.HOST).reduced(1);
    return List.of(
        new Block(reduced, 0, COUNT / 2), new Block(TestData.bits(type, 2), 77, COUNT - COUNT / 2));
  }

  @ParameterizedTest
  @EnumSource
  void acceptsWhatItWrote(DataType type) {
    FakeBuffer buffer = new FakeBuffer(COUNT * type.byteSize());
    Contents contents = new Contents(type);
    contents.write(buffer, blocks(type));
    assertEquals(0, contents.countWrong(buffer, blocks(type)));
  }

  @ParameterizedTest
  @EnumSource
  void countsEachWrongElement(DataType type) {
    FakeBuffer buffer = new FakeBuffer(COUNT * type.byteSize());
    Contents contents = new Contents(type);
    contents.write(buffer, blocks(type));
    SplittableRandom random = new SplittableRandom(type.ordinal());
    long[] places = random.longs(0, COUNT).distinct().limit(Tier.choose(20, 100)).toArray();
    for (int i = 0; i < places.length; i++) {
      // One bit of one byte of the element.
      long at = places[i] * type.byteSize() + random.nextInt(type.byteSize());
      flip(buffer.memory(), at, 1 << random.nextInt(8));
      assertEquals(i + 1, contents.countWrong(buffer, blocks(type)));
    }
  }

  private static void flip(MemorySegment memory, long at, int bit) {
    byte old = memory.get(ValueLayout.JAVA_BYTE, at);
    memory.set(ValueLayout.JAVA_BYTE, at, (byte) (old ^ bit));
  }

  @ParameterizedTest
  @EnumSource
  void countsEveryElementThatWasNotWritten(DataType type) {
    FakeBuffer buffer = new FakeBuffer(COUNT * type.byteSize());
    Contents contents = new Contents(type);
    contents.poison(buffer, blocks(type));
    assertEquals(COUNT, contents.countWrong(buffer, blocks(type)));
  }

  @ParameterizedTest
  @EnumSource
  void noticesDataInTheWrongPlace(DataType type) {
    FakeBuffer buffer = new FakeBuffer(COUNT * type.byteSize());
    Contents contents = new Contents(type);
    Pattern bits = TestData.bits(type, 1);
    for (long shift : new long[] {1, 16, 1024, 1597, 4096, 1 << 20, 1L << 32}) {
      contents.write(buffer, List.of(new Block(bits, shift, COUNT)));
      long wrong = contents.countWrong(buffer, List.of(new Block(bits, 0, COUNT)));
      assertTrue(wrong > COUNT * 0.99, "shift " + shift + ": " + wrong);
    }
  }
}

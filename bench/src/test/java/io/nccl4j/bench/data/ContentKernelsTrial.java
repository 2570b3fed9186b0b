package io.nccl4j.bench.data;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.SplittableRandom;

/**
 * Compares the kernels of {@link ContentKernels} with the arithmetic of the host, on the first GPU
 * of whatever libraries are found; as a program it says how fast they are, too.
 */
final class ContentKernelsTrial {
  /** More than the kernels have threads, so that some write several elements. */
  static final long COUNT = 1_200_001;

  private static final int[] FEW = {1, 2, 31, 255, 256, 257, 1023, 4099};

  private final Device device;
  private final ContentKernels kernels;

  ContentKernelsTrial(Device device, ContentKernels kernels) {
    this.device = device;
    this.kernels = kernels;
  }

  /** Exits with 1 if something differs. */
  public static void main(String[] arguments) {
    Device device = Device.get(Backend.CUDA, 0);
    System.out.println(device.name());
    List<String> problems = new ArrayList<>();
    try (ContentKernels kernels = new ContentKernels()) {
      ContentKernelsTrial trial = new ContentKernelsTrial(device, kernels);
      for (DataType type : DataType.values()) {
        List<String> found = trial.differences(type, COUNT);
        problems.addAll(found);
        System.out.println(type.label() + ": " + (found.isEmpty() ? trial.speed(type) : found));
      }
    }
    System.out.println(problems.isEmpty() ? "all as on the host" : problems.size() + " differ");
    System.exit(problems.isEmpty() ? 0 : 1);
  }

  /** Patterns of all kinds: bits, each reduction, and averages that may be off. */
  private static List<Pattern> patterns(DataType type) {
    List<Pattern> patterns = new ArrayList<>(List.of(TestData.bits(type, 7)));
    for (ReduceOp.Kind op : ReduceOp.Kind.values()) {
      TestData data = new TestData(type, op, 3, Backend.CUDA);
      patterns.add(data.input(1, 8));
      patterns.add(data.reduced(9));
    }
    return patterns;
  }

  /** What the kernels do in another way than the host, in words. */
  List<String> differences(DataType type, long most) {
    List<String> all = new ArrayList<>();
    Contents host = new Contents(type);
    Contents gpu = new Contents(type, kernels);
    try (DeviceBuffer buffer = device.allocate(type, most + 64)) {
      for (Pattern pattern : patterns(type)) {
        for (int count : FEW) {
          compare(host, gpu, buffer, List.of(new Block(pattern, count * 1_000_003L, count)), all);
        }
      }
      // One after another, the second of which must stay as it is.
      List<Pattern> patterns = patterns(type);
      compare(
          host,
          gpu,
          buffer,
          List.of(
              new Block(patterns.getFirst(), 1L << 40, most - 1001),
              new Block(patterns.getLast(), 5, 1, true),
              new Block(patterns.get(2), -3, 1000)),
          all);
    }
    return all;
  }

  private void compare(
      Contents host, Contents gpu, DeviceBuffer buffer, List<Block> blocks, List<String> all) {
    DataType type = blocks.getFirst().pattern().type();
    long count = blocks.stream().mapToLong(Block::count).sum();
    gpu.write(buffer, blocks);
    expect(host.check(buffer, blocks), Wrong.NOTHING, type, "written by the kernel", all);
    expect(gpu.check(buffer, blocks), Wrong.NOTHING, type, "written and checked by it", all);
    disturb(buffer, type, count);
    expect(gpu.check(buffer, blocks), host.check(buffer, blocks), type, "disturbed", all);
    host.poison(buffer, blocks);
    byte[] poisoned = bytes(buffer, type, count);
    gpu.write(buffer, blocks);
    gpu.poison(buffer, blocks);
    if (!java.util.Arrays.equals(poisoned, bytes(buffer, type, count))) {
      all.add(type.label() + ": poisoned in another way");
    }
    expect(gpu.check(buffer, blocks), host.check(buffer, blocks), type, "poisoned", all);
  }

  private static byte[] bytes(DeviceBuffer buffer, DataType type, long count) {
    try (DeviceBuffer part = buffer.slice(0, count * type.byteSize())) {
      return part.toBytes();
    }
  }

  /** Changes some elements: by little, so that a tolerance matters, or by much. */
  private static void disturb(DeviceBuffer buffer, DataType type, long count) {
    SplittableRandom random = new SplittableRandom(count + type.ordinal());
    for (int i = 0; i < 9; i++) {
      long at = random.nextLong(count) * type.byteSize();
      try (DeviceBuffer element = buffer.slice(at, type.byteSize())) {
        byte[] bits = element.toBytes();
        bits[i == 8 ? bits.length - 1 : 0] += (byte) (i == 8 ? 0x80 : i - 4);
        element.copyFrom(bits);
      }
    }
  }

  private static void expect(
      Wrong got, Wrong wanted, DataType type, String what, List<String> all) {
    if (!got.equals(wanted)) {
      all.add(type.label() + " " + what + ": " + got + ", on the host " + wanted);
    }
  }

  /** How fast they are, the blocking copies of tables and counters included. */
  private String speed(DataType type) {
    long count = (256L << 20) / type.byteSize();
    Contents gpu = new Contents(type, kernels);
    List<Block> blocks = List.of(new Block(TestData.bits(type, 1), 0, count));
    try (DeviceBuffer buffer = device.allocate(type, count)) {
      double write = Double.MAX_VALUE;
      double check = Double.MAX_VALUE;
      for (int i = 0; i < 5; i++) {
        long start = System.nanoTime();
        gpu.write(buffer, blocks);
        long written = System.nanoTime();
        gpu.check(buffer, blocks);
        write = Math.min(write, written - start);
        check = Math.min(check, System.nanoTime() - written);
      }
      return String.format(
          Locale.ROOT,
          "as on the host; 256 MiB are written in %.3f ms, checked in %.3f ms",
          write / 1e6,
          check / 1e6);
    }
  }
}

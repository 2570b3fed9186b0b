package io.nccl4j.bench.selftest;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Stream;
import io.nccl4j.memory.MemoryPool;
import io.nccl4j.memory.MemoryPoolOptions;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import org.jspecify.annotations.Nullable;

/**
 * The buffers of one rank in one episode of the soak: of the device, of a pool, and of the program;
 * new ones, and ones that were used before. The rank's thread uses it.
 */
final class SoakMemory {
  private static final int POOL_CHUNK = 4 << 20;
  private static final int MOST_OPEN = 8;
  private static final int MOST_SHIFT = 9;
  private static final int LARGEST_ELEMENT = 8;

  /** A buffer, with the arena it lies in if it is the program's. */
  private record Memory(DeviceBuffer buffer, @Nullable Arena arena) {}

  private final SoakProcess process;
  private final Device device;
  private final Random random;
  private final SoakStreams streams;
  private final SoakOutcome outcome;
  private final List<Memory> open = new ArrayList<>();
  private final List<Memory> inUse = new ArrayList<>();
  private final List<DeviceBuffer> pooled = new ArrayList<>();
  private @Nullable MemoryPool pool;

  /** Without buffers. */
  SoakMemory(
      SoakProcess process, Device device, Random random, SoakStreams streams, SoakOutcome outcome) {
    this.process = process;
    this.device = device;
    this.random = random;
    this.streams = streams;
    this.outcome = outcome;
  }

  /** Memory that no other operation of the step uses: of any kind, new or used before. */
  DeviceBuffer take(long size) {
    long shift = (long) LARGEST_ELEMENT * random.nextInt(MOST_SHIFT);
    Memory memory = random.nextInt(3) == 0 ? reuse(shift + size) : null;
    if (memory == null) {
      memory = newMemory(shift + size);
    }
    inUse.add(memory);
    return memory.buffer.slice(shift, size);
  }

  private @Nullable Memory reuse(long size) {
    for (int i = 0; i < open.size(); i++) {
      if (open.get(i).buffer.byteSize() >= size) {
        return open.remove(i);
      }
    }
    return null;
  }

  private Memory newMemory(long size) {
    int what = random.nextInt(8);
    if (what == 0) {
      Arena arena = Arena.ofShared();
      return new Memory(device.wrap(arena.allocate(size, Long.BYTES)), arena);
    }
    if (what == 1) {
      MemoryPool from = pool;
      if (from == null) {
        from = MemoryPool.create(device, MemoryPoolOptions.DEFAULTS.withChunkBytes(POOL_CHUNK));
        pool = from;
      }
      DeviceBuffer buffer = from.allocate(size, streams.any());
      pooled.add(buffer);
      return new Memory(buffer, null);
    }
    return new Memory(device.allocate(size), null);
  }

  /** The step is over: what its operations took can be used again. */
  void giveBack() {
    open.addAll(inUse);
    inUse.clear();
  }

  /** Closes some buffers that are not in use. */
  void tidy() {
    Collections.shuffle(open, random);
    while (open.size() > random.nextInt(MOST_OPEN)) {
      free(open.removeLast());
    }
  }

  private void free(Memory memory) {
    pooled.remove(memory.buffer);
    outcome.close("buffer", memory.buffer);
    if (memory.arena != null) {
      // Another thread of this process may be in it, if the episode failed.
      process.closeAfterEpisode(memory.arena);
    }
  }

  /**
   * Closes the pool, before its streams and after its buffers.
   *
   * @return what closes each of the other buffers, in any order
   */
  List<Runnable> close() {
    open.addAll(inUse);
    for (Memory memory : List.copyOf(open)) {
      if (pooled.contains(memory.buffer)) {
        open.remove(memory);
        free(memory);
      }
    }
    if (pool != null) {
      if (outcome.hasFailed()) {
        // Peers of a failed communicator may reach its memory until they are done with it.
        process.closeAfterEpisode(pool);
      } else {
        // An event may be complete a moment before its stream has passed it.
        streams.used().forEach(Stream::synchronize);
        outcome.close("pool", pool);
      }
    }
    if (outcome.hasFailed()) {
      keepSome();
    }
    List<Runnable> rest = new ArrayList<>();
    open.forEach(memory -> rest.add(() -> free(memory)));
    return rest;
  }

  /** What a failed operation wrote to stays as it is when the buffer is said to be quiet. */
  private void keepSome() {
    for (Memory memory : inUse) {
      if (memory.arena == null && random.nextBoolean() && open.remove(memory)) {
        process.keep(memory.buffer);
      }
    }
  }
}

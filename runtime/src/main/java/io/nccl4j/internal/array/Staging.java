package io.nccl4j.internal.array;

import io.nccl4j.ArrayCalls;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Stream;
import io.nccl4j.internal.operation.Operation;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/**
 * The memory and the stream through which a communicator's array calls go. It owns both: they are
 * made by the first call, and closed with the communicator. One call at a time is inside.
 */
public final class Staging {
  /** The communicator that array calls are made on. */
  public interface Owner extends Communicator {
    /**
     * Throws if a call that waits is not possible now.
     *
     * @param call for messages
     */
    void requireBlocking(String call);

    /** Device memory that is booked on the communicator. */
    DeviceBuffer allocateStaging(long bytes);
  }

  /** Where a second range starts: a multiple of a cache line, and of every element size. */
  private static final long ALIGNMENT = 64;

  private static final long SMALLEST = 4096;

  private final Owner owner;
  private final @Nullable StagedCalls<?>[] calls = new StagedCalls<?>[DataType.values().length];
  private final AtomicBoolean inside = new AtomicBoolean();
  private volatile boolean ended;
  private @Nullable Stream stream;

  /** Up to {@link ArrayCalls#KEPT_BYTES} bytes, which stay. */
  private @Nullable DeviceBuffer kept;

  /** What a call has instead that needs more. */
  private @Nullable DeviceBuffer large;

  /** The part that was asked for last: it is mostly the next one, too. */
  private @Nullable DeviceBuffer part;

  private long partStart;
  private boolean complete;

  /** That of a communicator, which has taken nothing yet. */
  public Staging(Owner owner) {
    this.owner = owner;
  }

  /**
   * The calls of one type; the same object each time.
   *
   * @throws InvalidArgumentException if arrays of that kind do not hold such elements
   */
  @SuppressWarnings("unchecked") // there is one kind of array for each data type
  public <A> ArrayCalls<A> calls(@Nullable Class<A> kind, @Nullable DataType type) {
    if (kind == null || type == null) {
      throw new InvalidArgumentException(
          "arrays: the " + (kind == null ? "kind of array" : "type") + " is null",
          "pass float[].class and DataType.FLOAT32, for example");
    }
    Class<?> fitting = kindOf(type);
    if (kind != fitting) {
      throw new InvalidArgumentException(
          "arrays: a " + kind.getTypeName() + " does not hold elements of type " + type,
          "pass " + fitting.getTypeName() + ".class for " + type);
    }
    StagedCalls<?> known = calls[type.ordinal()];
    if (known == null) {
      // A race is harmless: they have final fields only.
      known = new StagedCalls<>(this, owner, kind, type);
      calls[type.ordinal()] = known;
    }
    return (ArrayCalls<A>) known;
  }

  private static Class<?> kindOf(DataType type) {
    return switch (type) {
      case INT8, UINT8, FLOAT8_E4M3, FLOAT8_E5M2 -> byte[].class;
      case FLOAT16, BFLOAT16 -> short[].class;
      case INT32, UINT32 -> int[].class;
      case INT64, UINT64 -> long[].class;
      case FLOAT32 -> float[].class;
      case FLOAT64 -> double[].class;
    };
  }

  /** A barrier that is waited for. */
  public void barrier() {
    enter(Operation.BARRIER, 0);
    try {
      owner.barrier(stream());
      await();
    } finally {
      leave();
    }
  }

  // ---- a call

  /**
   * Begins a call, which {@link #leave} ends.
   *
   * @return at least so many bytes of memory
   */
  DeviceBuffer enter(Operation operation, long bytes) {
    owner.requireBlocking(operation.label());
    if (!inside.compareAndSet(false, true)) {
      throw new InvalidUsageException(
          operation.label() + ": another thread is inside communicator " + owner.name(),
          "use a communicator from one thread at a time, or one communicator per thread");
    }
    try {
      if (stream == null) {
        stream = owner.device().newStream();
      }
      return memory(bytes);
    } catch (RuntimeException | Error e) {
      leave();
      throw e;
    }
  }

  /** The stream of the call. */
  Stream stream() {
    return Objects.requireNonNull(stream);
  }

  /** Waits for what the call has queued. */
  void await() {
    stream().synchronize();
    complete = true;
  }

  /** Ends the call. Memory that operations may still use is left to them. */
  void leave() {
    if (!complete) {
      dropKept();
    }
    complete = false;
    if (large != null) {
      large.close();
      large = null;
      part = null;
    }
    inside.set(false);
    if (ended) {
      end();
    }
  }

  /** Gives everything back: now, or when the call of another thread has ended. */
  public void end() {
    ended = true;
    if (inside.compareAndSet(false, true)) {
      dropKept();
      if (stream != null) {
        stream.close();
        stream = null;
      }
      inside.set(false);
    }
  }

  /** Gives the memory back, if no call is inside: its own failure does the same. */
  public void abandon() {
    if (inside.compareAndSet(false, true)) {
      dropKept();
      inside.set(false);
      if (ended) {
        end();
      }
    }
  }

  private void dropKept() {
    if (kept != null) {
      kept.close();
      kept = null;
      part = null;
    }
  }

  // ---- memory

  private DeviceBuffer memory(long bytes) {
    if (bytes > ArrayCalls.KEPT_BYTES) {
      part = null;
      large = owner.allocateStaging(bytes);
      return large;
    }
    if (kept == null || kept.byteSize() < bytes) {
      dropKept();
      // A power of two, so that calls that grow do not allocate each time.
      long size = Math.max(SMALLEST, Long.highestOneBit(Math.max(1, bytes - 1)) << 1);
      kept = owner.allocateStaging(size);
    }
    return kept;
  }

  /** The call's memory from a byte on. */
  DeviceBuffer from(DeviceBuffer memory, long start) {
    DeviceBuffer known = part;
    if (known == null || partStart != start) {
      known = memory.slice(start);
      part = known;
      partStart = start;
    }
    return known;
  }

  /** Where a range can start behind one of so many bytes. */
  static long behind(long bytes) {
    return bytes + ALIGNMENT - 1 & -ALIGNMENT;
  }
}

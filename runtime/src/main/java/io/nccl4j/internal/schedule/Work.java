package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.observe.OperationTally;
import io.nccl4j.internal.observe.OperationTimer;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.observe.StallWatch;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Shape;
import io.nccl4j.internal.operation.Signature;
import io.nccl4j.internal.spi.EngineStream;
import io.nccl4j.internal.spi.Resource;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import org.jspecify.annotations.Nullable;

/**
 * One operation in a communicator's FIFO: what was asked for, and the place it takes until it is
 * complete. A backend adds its own state. Works are allocated with the FIFO and used again and
 * again.
 *
 * <p>The fields are written by the submitting thread before the work is published, and read by
 * whoever drives it.
 */
@SuppressWarnings(
    "checkstyle:VisibilityModifier") // a record of the hot path: plain fields, no copies
public abstract class Work {
  /** Bytes of FIFO that one work takes. */
  public static final int BYTES = 128;

  private static final int FREE = 0;
  private static final int TAKEN = 1;
  private static final long[] NONE = {};
  private static final VarHandle SLOT;

  static {
    try {
      SLOT = MethodHandles.lookup().findVarHandle(Work.class, "slot", int.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  /** The operation. */
  public Operation operation = Operation.BARRIER;

  /** Element type. */
  public DataType type = DataType.INT8;

  /** Reduction; {@link ReduceOp#SUM} where there is none. */
  public ReduceOp op = ReduceOp.SUM;

  /** Elements, by the operation's own meaning of count; for v-forms what this rank contributes. */
  public long count;

  /** Root or peer; 0 where there is none. */
  public int root;

  /** Send buffer, null where unused. */
  public @Nullable DeviceBuffer send;

  /** Receive buffer, null where unused. */
  public @Nullable DeviceBuffer recv;

  /** Per-rank counts and displacements of the v-forms, in elements; empty where unused. */
  public long[] sendCounts = NONE;

  /** See {@link #sendCounts}. */
  public long[] sendDisplacements = NONE;

  /** See {@link #sendCounts}. */
  public long[] recvCounts = NONE;

  /** See {@link #sendCounts}. */
  public long[] recvDisplacements = NONE;

  /**
   * Sequence number: of the communicator for collectives, of the lane for send and recv. From 1.
   */
  public long seq;

  private long code;

  /** Bytes of this rank's buffers for each of {@link #count}; −1 if blocks have counts. */
  private long bytesPerCount = -1;

  /** What the ranks compare. */
  public int signature;

  /** The stream it runs on. */
  public @Nullable EngineStream stream;

  /** The next work of the same plan. */
  public @Nullable Work next;

  /** For a graph's work: how many were called before it in the capture. */
  public int order;

  @SuppressWarnings("unused") // by VarHandle
  private int slot = FREE;

  private final boolean captured;

  /** Null until somebody observes it. */
  private @Nullable OperationTimer timer;

  private @Nullable StallWatch stalls;

  /**
   * A work of a FIFO or of a graph.
   *
   * @param captured whether a graph owns it: it takes no room in a FIFO and keeps its arguments
   *     when it is complete
   */
  protected Work(boolean captured) {
    this.captured = captured;
    encode();
  }

  /** The communicator that it was called on. */
  public abstract Communicator owner();

  /** How messages name it. */
  public final String describe() {
    return Signature.describe(code, count) + " #" + seq + " of communicator " + owner().name();
  }

  /** Whether it uses a buffer or a part of it. */
  public final boolean uses(Object buffer) {
    return Resource.isPart(send, buffer)
        || Resource.isPart(recv, buffer)
        || Resource.isPart(op.deviceScalar(), buffer);
  }

  /** Whether a graph owns it. */
  public final boolean isCaptured() {
    return captured;
  }

  /** Whether the work was submitted and is not complete; any thread may ask. */
  public final boolean isInUse() {
    return (int) SLOT.getAcquire(this) == TAKEN;
  }

  /**
   * What is mostly the same as in the use before: a reference is written only if it differs,
   * because each write costs the garbage collector's barrier, too.
   */
  final void set(
      Operation newOperation,
      DataType newType,
      ReduceOp newOp,
      int newRoot,
      EngineStream newStream,
      int rank,
      int nranks) {
    if (stream != newStream) {
      stream = newStream;
    }
    if (operation == newOperation && type == newType && op == newOp && root == newRoot) {
      return;
    }
    operation = newOperation;
    type = newType;
    op = newOp;
    root = newRoot;
    encode();
    bytesPerCount = operation.varies() ? -1 : bytesOf(1, rank, nranks);
  }

  final void take() {
    SLOT.setOpaque(this, TAKEN);
  }

  /**
   * Gives the slot back, once: the work is complete, failed or discarded. A graph's work stays as
   * it is.
   */
  public final void free() {
    if (captured) {
      return;
    }
    OperationTimer running = timer;
    if (running != null) {
      running.end();
    }
    if (send != null) {
      send = null;
    }
    if (recv != null) {
      recv = null;
    }
    if (next != null) {
      next = null;
    }
    SLOT.setRelease(this, FREE);
  }

  /** Sets {@link #code()}, when all it is made of is set. */
  public final void encode() {
    code = Signature.code(operation, type.ordinal(), op.kind().ordinal(), root);
  }

  /** Its place in the ledger and in messages: everything but the count. */
  public final long code() {
    return code;
  }

  /** Whether all ranks call it. */
  public final boolean isCollective() {
    return operation.isCollective();
  }

  // ---- which block of which rank goes where, in elements

  /** Whether this rank's data is taken. */
  public final boolean sends(int rank) {
    return operation.sends(rank == root);
  }

  /** Whether this rank gets a result. */
  public final boolean receives(int rank) {
    return operation.receives(rank == root);
  }

  /** Elements of the block for a rank in the send buffer of this one, which sends. */
  public final long sendCount(int k) {
    return operation.sent() == Shape.VARYING ? sendCounts[k] : count;
  }

  /** Where that block starts. */
  public final long sendStart(int k) {
    return switch (operation.sent()) {
      case EACH -> k * count;
      case VARYING -> sendDisplacements[k];
      default -> 0;
    };
  }

  /** Elements of the block of a rank in the receive buffer of this one, which receives. */
  public final long recvCount(int k) {
    return operation.received() == Shape.VARYING ? recvCounts[k] : count;
  }

  /** Where that block starts. */
  public final long recvStart(int k) {
    return switch (operation.received()) {
      case EACH -> k * count;
      case VARYING -> recvDisplacements[k];
      default -> 0;
    };
  }

  /** The counts of all blocks, if all ranks pass them. */
  public final long[] commonCounts() {
    return operation.sent() == Shape.VARYING ? sendCounts : recvCounts;
  }

  /** What of its counts all ranks know. */
  public final long signedCount(int nranks) {
    if (!operation.varies()) {
      return count;
    }
    return operation.hasCommonCounts() ? Signature.ofCounts(commonCounts(), nranks) : 0;
  }

  /**
   * Bytes of this rank's buffers: the larger of what it sends and what it receives.
   *
   * @param rank this one
   */
  final long bytes(int rank, int nranks) {
    return bytesPerCount >= 0 ? count * bytesPerCount : bytesOf(count, rank, nranks);
  }

  private long bytesOf(long own, int rank, int nranks) {
    long sent = sends(rank) ? elements(operation.sent(), own, sendCounts, nranks) : 0;
    long received = receives(rank) ? elements(operation.received(), own, recvCounts, nranks) : 0;
    return Math.max(sent, received) * type.byteSize();
  }

  private static long elements(Shape shape, long own, long[] counts, int nranks) {
    return switch (shape) {
      case NOTHING -> 0;
      case ONE -> own;
      case EACH -> own * nranks;
      case VARYING -> {
        long sum = 0;
        for (long one : counts) {
          sum += one;
        }
        yield sum;
      }
    };
  }

  // ---- for observers

  /** It is submitted now, and somebody observes it. */
  final void startTimer(OperationTally tally) {
    OperationTimer known = timer;
    if (known == null) {
      known = new OperationTimer(new ObservedWork(this));
      timer = known;
    }
    known.begin(tally);
  }

  /** All that it waited for is there; by its driver. */
  public final void met() {
    OperationTimer running = timer;
    if (running != null) {
      running.met();
    }
  }

  /** It ends without success; by its driver, before it is given back. */
  public final void broken() {
    OperationTimer running = timer;
    if (running != null) {
      running.broken();
    }
  }

  /** Whoever waits for it has found again that it is not complete. */
  public final void waiting() {
    if (Recorder.HERE.wantsStalls()) {
      StallWatch known = stalls;
      if (known == null) {
        known = new StallWatch(new ObservedWork(this));
        stalls = known;
      }
      known.waiting();
    }
  }

  /** How it is carried out, once that is known; empty if the backend does not tell. */
  protected String protocol() {
    return "";
  }

  /** Whom or what it waits for, in words. */
  protected abstract String awaited();
}

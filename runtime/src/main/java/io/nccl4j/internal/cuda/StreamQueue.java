package io.nccl4j.internal.cuda;

import io.nccl4j.NcclException;
import io.nccl4j.cuda.CudaException;
import io.nccl4j.internal.cuda.driver.Driver;
import io.nccl4j.internal.cuda.driver.Gpu;
import io.nccl4j.internal.cuda.driver.Guard;
import io.nccl4j.internal.cuda.driver.Marks;
import io.nccl4j.internal.cuda.driver.StreamHandle;
import io.nccl4j.internal.cuda.nccl.CudaDeadlines;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import io.nccl4j.internal.schedule.Padded;
import io.nccl4j.internal.spi.Failures;
import io.nccl4j.internal.spi.Resource;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.util.LinkedHashSet;
import java.util.Set;
import org.jspecify.annotations.Nullable;

/**
 * A ring of what is in a stream that the device has not passed yet, and the first failure in it.
 *
 * <p>How far the device has come is learnt from the stream itself when everything is waited for,
 * and otherwise from marks: events recorded every {@value #ENTRIES_PER_MARK} entries, or when
 * somebody needs to know. There is no event per operation.
 */
@SuppressWarnings("try") // a scope is entered, not used
final class StreamQueue extends Padded {
  /**
   * A quarter of what CUDA queues before a call waits for the device, where no deadline sees it.
   */
  static final int CAPACITY = 256;

  private static final int ENTRIES_PER_MARK = CAPACITY / 2;
  private static final VarHandle NEXT;

  static {
    try {
      NEXT = MethodHandles.lookup().findVarHandle(StreamQueue.class, "next", long.class);
    } catch (ReflectiveOperationException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private final Gpu gpu;
  private final StreamHandle handle;
  private final StreamLaunches launches;
  private final Marks marks;
  private final Slot[] ring = new Slot[CAPACITY];
  private final Guard guard = new Guard();

  /** Entries put in; the submitting thread's, which puts no fence behind a launch. */
  private long next;

  /** Entries that the device has passed. Under the guard. */
  private volatile long head;

  private long marked;
  private volatile @Nullable NcclException error;
  private volatile long failedAt = Long.MAX_VALUE;

  StreamQueue(Gpu gpu, StreamHandle handle, StreamLaunches launches, Marks marks) {
    this.gpu = gpu;
    this.handle = handle;
    this.launches = launches;
    this.marks = marks;
    for (int i = 0; i < CAPACITY; i++) {
      ring[i] = new Slot();
    }
  }

  /** Keeps entries from being passed, and the stream from being captured or destroyed. */
  Guard guard() {
    return guard;
  }

  /** Entries put in so far. Any thread. */
  long next() {
    return (long) NEXT.getAcquire(this);
  }

  /** Entries that the device is known to have passed. Any thread. */
  long head() {
    return head;
  }

  boolean isEmpty() {
    return head == next();
  }

  // ---- putting in; there is room

  boolean isFull() {
    return next - head >= CAPACITY;
  }

  /** Marks where the stream is, if that is due. */
  void markIfDue() {
    if (next - marked >= ENTRIES_PER_MARK) {
      mark();
    }
  }

  private void mark() {
    if (handle.isDefault()) {
      try (Gpu.Scope ignored = gpu.enter()) {
        marks.record(handle.get(), next);
      }
    } else {
      marks.record(handle.get(), next);
    }
    marked = next;
  }

  /** A plan of works that were handed to NCCL. */
  void add(CudaWork plan) {
    slot(next).works = plan;
    advance();
  }

  /** A launch of a graph. */
  void add(LaunchedGraph graph) {
    slot(next).graph = graph;
    advance();
  }

  /** A copy, a fill or a kernel, and what it uses. */
  void add(Resource target, @Nullable Resource source) {
    Slot slot = slot(next);
    slot.target = target;
    slot.source = source;
    advance();
  }

  /** A wait for another stream, up to a position. */
  void add(StreamQueue other, long position) {
    Slot slot = slot(next);
    slot.other = other;
    slot.otherPosition = position;
    advance();
  }

  private Slot slot(long position) {
    return ring[(int) position & CAPACITY - 1];
  }

  private void advance() {
    NEXT.setRelease(this, next + 1);
  }

  // ---- passing

  /** Whether the device has passed everything; never waits. */
  boolean poll() {
    // Read first: a launch that is under way was noted before its entry.
    long end = next();
    if (!launches.areDone()) {
      return false;
    }
    int result = handle.query();
    if (result == Driver.NOT_READY) {
      return false;
    }
    if (result != Driver.SUCCESS) {
      broken(failure(result));
    }
    passed(end);
    return true;
  }

  /** Notes the stream's answer, asked when {@code end} entries had been put in. Any thread. */
  void learn(int result, long end) {
    if (result == Driver.SUCCESS) {
      passed(end);
    } else if (result != Driver.NOT_READY) {
      NcclException e = failure(result);
      // Nothing is lost if the program itself captures the stream, which does not answer then.
      if (isLoss(e)) {
        broken(e);
      }
    }
  }

  /** Whether the device has passed an entry; asks it. */
  boolean hasPassed(long position) {
    long end = next();
    if (head >= position && position < end) {
      return true;
    }
    if (position == end) {
      return poll();
    }
    if (position > marked) {
      if (!launches.areDone()) {
        return false;
      }
      mark();
    }
    return !passMarks() || head >= position;
  }

  /** Gives back what lies before the marks that the device has passed; false if it is lost. */
  boolean passMarks() {
    long reached = marks.poll();
    if (reached < 0) {
      broken(failure((int) -reached));
      return false;
    }
    if (reached > head) {
      passed(reached);
    }
    return true;
  }

  private static NcclException failure(int result) {
    return Driver.failure(result, "cuStreamQuery");
  }

  /** The context is lost, or the stream: nothing in it will complete. */
  private void broken(NcclException e) {
    fail(e, head);
    long end = next();
    for (long i = head; i < end; i++) {
      for (CudaWork work = slot(i).works; work != null; work = (CudaWork) work.next) {
        work.rank.health().fail(e);
      }
    }
    if (isLoss(e)) {
      CudaDeadlines.deviceLost(gpu, e);
    }
    passed(end);
  }

  /** Whether the whole device is lost, and not only the stream. */
  private static boolean isLoss(NcclException e) {
    return e instanceof CudaException cuda && cuda.isSticky();
  }

  /** The ranks whose works are queued. */
  Set<CudaRank> ranks() {
    Set<CudaRank> all = new LinkedHashSet<>();
    guard.enter();
    try {
      long end = next();
      for (long i = head; i < end; i++) {
        slot(i).addRanks(all);
      }
    } finally {
      guard.leave();
    }
    return all;
  }

  /** Gives back what entries before {@code position} held. */
  void passed(long position) {
    guard.enter();
    long at = head;
    try {
      // Whoever waits does so until this is over: a rank is asked once, for all of its works.
      CudaRank asked = null;
      NcclException outcome = null;
      while (at < position) {
        Slot slot = slot(at++);
        CudaWork work = slot.works;
        while (work != null) {
          CudaWork following = (CudaWork) work.next;
          if (work.rank != asked) {
            asked = work.rank;
            outcome = asked.health().outcome();
          }
          if (outcome != null) {
            fail(outcome, at);
            work.broken();
          }
          asked.pending().completed(work);
          work.free();
          work = following;
        }
        retireOthers(slot, at);
        slot.clear();
      }
    } finally {
      head = at;
      guard.leave();
    }
  }

  private void retireOthers(Slot slot, long position) {
    if (slot.graph != null) {
      failIf(slot.graph.passed(), position);
    }
    if (slot.other != null) {
      failIf(slot.other.failureUpTo(slot.otherPosition), position);
    }
  }

  // ---- failure

  private void failIf(@Nullable NcclException e, long position) {
    if (e != null) {
      fail(e, position);
    }
  }

  /** The first failure counts. */
  void fail(NcclException e, long position) {
    if (error == null) {
      failedAt = position;
      error = e;
    }
  }

  /** Why what lies before a position failed; null if it did not. */
  @Nullable NcclException failureUpTo(long position) {
    NcclException e = error;
    return e != null && failedAt <= position ? e : null;
  }

  void throwIfFailed() {
    NcclException failure = error;
    if (failure != null) {
      throw Failures.again(failure);
    }
  }

  // ---- looking, by any thread

  /** What lies first; it may be passed meanwhile, and its place be used again. */
  Slot first() {
    return slot(head);
  }

  /** Looks for faults of the ranks with work in this stream. */
  void look() {
    ranks().forEach(rank -> rank.health().look());
  }

  /** What lies first, for messages; may be out of date. */
  String describeFirst() {
    if (isEmpty()) {
      return "nothing is queued";
    }
    Slot slot = first();
    CudaWork work = slot.works;
    return work == null ? slot.describe() : work.rank.deadlines().explain(work);
  }

  /** Position behind the last entry that uses a buffer; 0 if none does. */
  long lastUse(Object buffer) {
    guard.enter();
    try {
      for (long i = next(); --i >= head; ) {
        if (slot(i).uses(buffer)) {
          return i + 1;
        }
      }
      return 0;
    } finally {
      guard.leave();
    }
  }

  /** What uses a buffer, in words; null if nothing does. */
  @Nullable String userOf(Object buffer) {
    guard.enter();
    try {
      long end = next();
      for (long i = head; i < end; i++) {
        Slot slot = slot(i);
        if (slot.uses(buffer)) {
          return slot.describe();
        }
      }
      return null;
    } finally {
      guard.leave();
    }
  }
}

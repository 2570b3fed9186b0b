package io.nccl4j.internal.schedule;

import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/**
 * An open group: works that have taken their room in the FIFO but are in no stream yet.
 *
 * <p>One object per thread and nesting depth, used again, so that an exchange in a loop allocates
 * nothing. Launching a nested group leaves its works to the outer one; discarding it gives back the
 * works since it was opened. Between the calls of a group its communicators may be handed over to
 * other threads, which may have works of their own there by then: each work is given back by
 * itself, and a launch enters its communicators like any other call.
 */
public final class GroupScope implements Group {
  private static final ThreadLocal<PerThread> THREADS = ThreadLocal.withInitial(PerThread::new);

  private static final int FEW = 16;

  /** Groups of one thread: a stack of reused scopes over one list of works. */
  static final class PerThread {
    final ArrayList<GroupScope> scopes = new ArrayList<>();

    /** Communicators that a launch has entered. */
    final ArrayList<ScheduledCommunicator<?>> entered = new ArrayList<>();

    /** The works of the open groups; null from {@link #count} on. */
    @Nullable Work[] works = new Work[FEW];

    int count;
    final ArrayList<ScheduledStream<?>> streams = new ArrayList<>();
    final ArrayList<Runnable> afterwards = new ArrayList<>();
    int depth;

    Work work(int i) {
      return Objects.requireNonNull(works[i]);
    }

    void add(Work work) {
      if (count == works.length) {
        works = Arrays.copyOf(works, 2 * count);
      }
      works[count++] = work;
    }

    Work removeLast() {
      Work last = work(--count);
      works[count] = null;
      return last;
    }

    void clear() {
      while (count > 0) {
        works[--count] = null;
      }
    }
  }

  private final PerThread threadState;
  private final Thread thread = Thread.currentThread();
  private final int level;
  private int firstWork;
  private boolean open;

  private GroupScope(PerThread threadState, int level) {
    this.threadState = threadState;
    this.level = level;
  }

  /** Opens a group on the current thread. */
  public static Group open() {
    PerThread state = THREADS.get();
    if (state.depth == state.scopes.size()) {
      state.scopes.add(new GroupScope(state, state.depth));
    }
    GroupScope scope = state.scopes.get(state.depth++);
    scope.firstWork = state.count;
    scope.open = true;
    return scope;
  }

  /** Whether operations called on the current thread are collected rather than started. */
  public static boolean isOpen() {
    return THREADS.get().depth > 0;
  }

  /** Runs an action as if no group were open on the current thread. */
  public static <T extends @Nullable Object> T suspended(Supplier<T> action) {
    PerThread state = THREADS.get();
    int depth = state.depth;
    state.depth = 0;
    try {
      return action.get();
    } finally {
      state.depth = depth;
    }
  }

  /** The works of the current thread's open groups, in order, which are in no stream yet. */
  public static List<Work> collected() {
    PerThread state = THREADS.get();
    List<Work> works = new ArrayList<>();
    for (int i = 0; i < state.count; i++) {
      works.add(state.work(i));
    }
    return works;
  }

  /**
   * Runs an action when the current thread's groups have ended: their works are in streams then.
   */
  public static void afterGroups(Runnable action) {
    PerThread state = THREADS.get();
    if (state.depth == 0) {
      action.run();
    } else {
      state.afterwards.add(action);
    }
  }

  /** The innermost open group of the current thread; null if there is none. */
  private static @Nullable GroupScope innermost(PerThread state) {
    return state.depth == 0 ? null : state.scopes.get(state.depth - 1);
  }

  /** Remembers the groups of the thread that asked last, which is mostly the one that asks next. */
  static final class Finder {
    private @Nullable Thread thread;
    private PerThread groups = new PerThread();

    /** The innermost open group of the current thread; null if there is none. */
    @Nullable GroupScope current() {
      Thread now = Thread.currentThread();
      if (thread != now) {
        groups = THREADS.get();
        thread = now;
      }
      return innermost(groups);
    }
  }

  void requireRoom(ScheduledCommunicator<?> owner, int limit) {
    int of = 0;
    if (threadState.count >= limit) {
      for (int i = 0; i < threadState.count; i++) {
        of += threadState.work(i).owner() == owner ? 1 : 0;
      }
    }
    if (of >= limit) {
      throw new InvalidUsageException(
          "a group holds at most " + limit + " operations of a communicator, half of its work FIFO",
          "launch smaller groups, or raise fifo-bytes");
    }
  }

  void add(Work work) {
    threadState.add(work);
  }

  private static ScheduledCommunicator<?> ownerOf(Work work) {
    return (ScheduledCommunicator<?>) work.owner();
  }

  private static ScheduledStream<?> streamOf(Work work) {
    return (ScheduledStream<?>) Objects.requireNonNull(work.stream);
  }

  @Override
  public void launch() {
    requireOpen();
    if (level > 0) {
      end();
      return;
    }
    if (isPlain()) {
      launchPlain(ownerOf(threadState.work(0)));
    } else {
      launchAll();
    }
  }

  /** Whether all works are of one communicator and start on one stream, as they mostly do. */
  private boolean isPlain() {
    int count = threadState.count;
    if (count == 0) {
      return false;
    }
    Work first = threadState.work(0);
    ScheduledCommunicator<?> owner = ownerOf(first);
    for (int i = 0; i < count; i++) {
      Work work = threadState.work(i);
      if (work.stream != first.stream || work.isCaptured() || ownerOf(work) != owner) {
        return false;
      }
    }
    return !streamOf(first).isCapturing();
  }

  // All in one method: the compiler inlines calls 15 levels deep, and with one level more the last
  // ones, which write to the control block, would often be left out.
  @SuppressWarnings("unchecked") // a communicator's FIFO holds only its own works
  private <W extends Work> void launchPlain(ScheduledCommunicator<W> owner) {
    W plan = (W) threadState.work(0);
    ScheduledStream<W> stream = (ScheduledStream<W>) streamOf(plan);
    boolean prepared = false;
    try {
      owner.enterForLaunch();
      try {
        stream.awaitRoom();
        prepared = true;
        owner.submit(plan);
        Work last = plan;
        for (int i = 1; i < threadState.count; i++) {
          W work = (W) threadState.work(i);
          owner.submit(work);
          last.next = work;
          last = work;
        }
        stream.publish(plan);
      } finally {
        owner.leave();
      }
    } finally {
      finish(prepared);
    }
  }

  private void launchAll() {
    boolean prepared = false;
    try {
      enter();
      awaitRoom();
      prepared = true;
      assignAll();
    } finally {
      leave();
      finish(prepared);
    }
  }

  private void finish(boolean isLaunched) {
    if (isLaunched) {
      // From here the works belong to their streams, whatever happened.
      threadState.clear();
      end();
    } else {
      close();
    }
  }

  /** Keeps other threads out of the communicators, each of which must accept operations. */
  private void enter() {
    ScheduledCommunicator<?> last = null;
    for (int i = 0; i < threadState.count; i++) {
      ScheduledCommunicator<?> owner = ownerOf(threadState.work(i));
      if (owner != last) {
        owner.enterForGroup(threadState);
        last = owner;
      }
    }
  }

  private void leave() {
    for (int i = 0; i < threadState.entered.size(); i++) {
      threadState.entered.get(i).leaveGroup();
    }
    threadState.entered.clear();
  }

  /** Everything else that can fail or wait, before anything is started. */
  private void awaitRoom() {
    ScheduledStream<?> last = null;
    boolean capturing = false;
    for (int i = 0; i < threadState.count; i++) {
      Work work = threadState.work(i);
      ScheduledStream<?> stream = streamOf(work);
      if (stream != last) {
        capturing = stream.isCapturing();
        stream.awaitRoom();
        last = stream;
      }
      if (capturing != work.isCaptured()) {
        throw new InvalidUsageException(
            "a capture of a stream in the group began or ended after the group's call",
            "let the stream join the capture before the group is opened");
      }
    }
  }

  private void assignAll() {
    ScheduledStream<?> last = null;
    boolean together = false;
    boolean several = false;
    for (int i = 0; i < threadState.count; i++) {
      Work work = threadState.work(i);
      append(ownerOf(work), work);
      ScheduledStream<?> stream = streamOf(work);
      if (stream != last) {
        several |= last != null;
        together |= stream.engine().startsTogether();
        last = stream;
      }
    }
    if (together) {
      publishTogether();
    } else if (several) {
      publishEach();
    } else if (last != null) {
      last.publish();
    }
  }

  private void publishEach() {
    for (int i = 0; i < threadState.count; i++) {
      ScheduledStream<?> stream = streamOf(threadState.work(i));
      if (stream.hasAppended()) {
        stream.publish();
      }
    }
  }

  private void publishTogether() {
    ArrayList<ScheduledStream<?>> streams = threadState.streams;
    for (int i = 0; i < threadState.count; i++) {
      ScheduledStream<?> stream = streamOf(threadState.work(i));
      if (!streams.contains(stream)) {
        streams.add(stream);
      }
    }
    try {
      for (int i = 0; i < streams.size(); i++) {
        streams.get(i).engine().hold();
      }
      for (int i = 0; i < streams.size(); i++) {
        streams.get(i).publish();
      }
      for (int i = 0; i < streams.size(); i++) {
        streams.get(i).engine().start();
      }
    } finally {
      streams.clear();
    }
  }

  @SuppressWarnings("unchecked") // a communicator's FIFO holds only its own works
  private static <W extends Work> void append(ScheduledCommunicator<W> owner, Work work) {
    W own = (W) work;
    if (!own.isCaptured()) {
      owner.submit(own);
    }
    ((ScheduledStream<W>) streamOf(own)).append(own);
  }

  @Override
  public void close() {
    if (!open) {
      return;
    }
    if (Thread.currentThread() != thread) {
      throw notThisThread();
    }
    while (threadState.depth > level + 1) {
      threadState.scopes.get(threadState.depth - 1).close();
    }
    while (threadState.count > firstWork) {
      Work work = threadState.removeLast();
      ScheduledCommunicator<?> owner = ownerOf(work);
      owner.fifo().discard(work);
      owner.gaveBack();
    }
    end();
  }

  private void end() {
    open = false;
    threadState.depth = level;
    if (level == 0 && !threadState.afterwards.isEmpty()) {
      runAfterwards();
    }
  }

  private void runAfterwards() {
    List<Runnable> actions = List.copyOf(threadState.afterwards);
    threadState.afterwards.clear();
    actions.forEach(Runnable::run);
  }

  private void requireOpen() {
    if (Thread.currentThread() != thread) {
      throw notThisThread();
    }
    if (!open) {
      throw new InvalidUsageException(
          "this group was launched or closed before", "start a new group");
    }
    if (threadState.depth != level + 1) {
      throw new InvalidUsageException(
          "a group inside this one is still open", "close or launch the inner group first");
    }
  }

  private static InvalidUsageException notThisThread() {
    return new InvalidUsageException(
        "a group belongs to the thread that started it",
        "start, launch and close it on one thread");
  }
}

package io.nccl4j.internal.schedule;

import io.nccl4j.Group;
import io.nccl4j.InvalidUsageException;
import java.util.ArrayList;
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

  /** Groups of one thread: a stack of reused scopes over one list of works. */
  static final class PerThread {
    final ArrayList<GroupScope> scopes = new ArrayList<>();

    /** Communicators that a launch has entered. */
    final ArrayList<ScheduledCommunicator<?>> entered = new ArrayList<>();

    final ArrayList<ScheduledCommunicator<?>> owners = new ArrayList<>();
    final ArrayList<Work> works = new ArrayList<>();
    final ArrayList<ScheduledStream<?>> streams = new ArrayList<>();
    final ArrayList<Runnable> afterwards = new ArrayList<>();
    int depth;
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
    scope.firstWork = state.works.size();
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
    return List.copyOf(THREADS.get().works);
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
    if (threadState.works.size() >= limit) {
      for (ScheduledCommunicator<?> other : threadState.owners) {
        of += other == owner ? 1 : 0;
      }
    }
    if (of >= limit) {
      throw new InvalidUsageException(
          "a group holds at most " + limit + " operations of a communicator, half of its work FIFO",
          "launch smaller groups, or raise fifo-bytes");
    }
  }

  void add(ScheduledCommunicator<?> owner, Work work) {
    threadState.owners.add(owner);
    threadState.works.add(work);
  }

  @Override
  public void launch() {
    requireOpen();
    if (level > 0) {
      end();
      return;
    }
    boolean prepared = false;
    try {
      enter();
      awaitRoom();
      prepared = true;
      assignAll();
    } finally {
      leave();
      if (prepared) {
        // From here the works belong to their streams, whatever happened.
        threadState.works.clear();
        threadState.owners.clear();
        end();
      } else {
        close();
      }
    }
  }

  /** Keeps other threads out of the communicators, each of which must accept operations. */
  private void enter() {
    ScheduledCommunicator<?> last = null;
    for (int i = 0; i < threadState.owners.size(); i++) {
      ScheduledCommunicator<?> owner = threadState.owners.get(i);
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
    for (int i = 0; i < threadState.works.size(); i++) {
      Work work = threadState.works.get(i);
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
    ArrayList<Work> works = threadState.works;
    ScheduledStream<?> last = null;
    boolean together = false;
    boolean several = false;
    for (int i = 0; i < works.size(); i++) {
      Work work = works.get(i);
      append(threadState.owners.get(i), work);
      ScheduledStream<?> stream = streamOf(work);
      if (stream != last) {
        several |= last != null;
        together |= stream.engine().startsTogether();
        last = stream;
      }
    }
    if (together) {
      // Apart, so that the rest stays small enough to be compiled into the caller's code.
      publishTogether();
    } else if (several) {
      publishEach();
    } else if (last != null) {
      last.publish();
    }
  }

  private void publishEach() {
    ArrayList<Work> works = threadState.works;
    for (int i = 0; i < works.size(); i++) {
      ScheduledStream<?> stream = streamOf(works.get(i));
      if (stream.hasAppended()) {
        stream.publish();
      }
    }
  }

  private static ScheduledStream<?> streamOf(Work work) {
    return (ScheduledStream<?>) Objects.requireNonNull(work.stream);
  }

  private void publishTogether() {
    ArrayList<ScheduledStream<?>> streams = threadState.streams;
    ArrayList<Work> works = threadState.works;
    for (int i = 0; i < works.size(); i++) {
      ScheduledStream<?> stream = streamOf(works.get(i));
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
    for (int i = threadState.works.size(); --i >= firstWork; ) {
      ScheduledCommunicator<?> owner = threadState.owners.remove(i);
      owner.fifo().discard(threadState.works.remove(i));
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

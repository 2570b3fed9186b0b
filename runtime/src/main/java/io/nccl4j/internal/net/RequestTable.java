package io.nccl4j.internal.net;

import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.function.IntFunction;

/** The requests of a port, by the numbers that its user knows them by. */
public final class RequestTable<R extends Request> {
  private final IntFunction<R> maker;
  private final List<R> all = new ArrayList<>();
  private final Deque<R> free = new ArrayDeque<>();

  /**
   * An empty table.
   *
   * @param maker makes the request with an index
   */
  public RequestTable(IntFunction<R> maker) {
    this.maker = maker;
  }

  /** A request for data that is about to move. */
  public R take() {
    R again = free.poll();
    if (again != null) {
      return again;
    }
    R another = maker.apply(all.size());
    all.add(another);
    return another;
  }

  /** The number of a request that has failed. */
  public long failed() {
    R never = take();
    never.begin(0, 0);
    never.end(Port.FAILED);
    return never.number();
  }

  /** What {@link Port#state} returns. */
  public int state(long number) {
    if (number == Port.NONE) {
      return Port.COMPLETE;
    }
    R request = all.get(Request.indexOf(number));
    if (!request.is(number)) {
      throw new IllegalArgumentException("that request was given back");
    }
    int state = request.state();
    if (state != Port.PENDING) {
      request.retire();
      free.push(request);
    }
    return state;
  }

  /** All that there ever were, also those that are free. */
  public List<R> all() {
    return all;
  }
}

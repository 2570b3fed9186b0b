package io.nccl4j.internal.memory;

import io.nccl4j.MemoryPolicy;
import io.nccl4j.memory.MemoryBudgetException;
import io.nccl4j.memory.MemoryPlace;
import io.nccl4j.memory.MemoryPrediction;
import io.nccl4j.memory.MemoryQuery;
import io.nccl4j.memory.MemoryQuery.Lever;
import java.util.List;
import java.util.Optional;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * Decides, before a communicator is made, whether it fits, and which of the levers make it fit:
 * arithmetic only.
 */
public final class Budget {
  /**
   * What must not be exceeded.
   *
   * @param name for people, for example {@code memory-budget}
   * @param bytes that are left
   * @param firm whether a communicator that exceeds it is refused under every policy; if not, only
   *     where it is strict
   */
  public record Limit(String name, long bytes, boolean firm) {}

  /** A change of a query that lowers its memory. */
  public interface Step extends Function<MemoryQuery, @Nullable MemoryQuery> {}

  /**
   * What to do.
   *
   * @param query as it was, or lowered
   * @param prediction of that query
   * @param first what the query would have taken as it was, in bytes
   * @param exceeded the limit that the query exceeded as it was; null if none
   * @param fits whether the lowered query exceeds no limit
   */
  public record Decision(
      MemoryQuery query,
      MemoryPrediction prediction,
      long first,
      @Nullable Limit exceeded,
      boolean fits) {}

  private Budget() {}

  /**
   * Decides.
   *
   * @param predictor predicts
   * @param place where the limits are
   * @param steps what may be lowered, in this order, each until everything fits or it returns null
   * @throws MemoryBudgetException if it does not fit, and the policy or the limit is firm
   */
  public static Decision decide(
      String what,
      MemoryQuery query,
      Function<MemoryQuery, MemoryPrediction> predictor,
      MemoryPlace place,
      List<Limit> limits,
      MemoryPolicy policy,
      List<Step> steps) {
    MemoryPrediction asked = predictor.apply(query);
    Limit exceeded = exceeded(asked, place, limits);
    if (exceeded == null) {
      return new Decision(query, asked, asked.bytes(place), null, true);
    }
    if (policy == MemoryPolicy.STRICT) {
      throw refusal(what, asked, place, exceeded);
    }
    MemoryQuery lowered = query;
    MemoryPrediction prediction = asked;
    for (Step step : steps) {
      MemoryQuery next = step.apply(lowered);
      while (next != null && exceeded(prediction, place, limits) != null) {
        lowered = next;
        prediction = predictor.apply(lowered);
        next = step.apply(lowered);
      }
    }
    for (Limit limit : limits) {
      if (limit.firm && prediction.bytes(place) > limit.bytes) {
        throw refusal(what, prediction, place, limit);
      }
    }
    boolean fits = exceeded(prediction, place, limits) == null;
    return new Decision(lowered, prediction, asked.bytes(place), exceeded, fits);
  }

  /** The limit that is exceeded most; null if none is. */
  private static @Nullable Limit exceeded(
      MemoryPrediction prediction, MemoryPlace place, List<Limit> limits) {
    Limit worst = null;
    for (Limit limit : limits) {
      if (prediction.bytes(place) > limit.bytes && (worst == null || limit.bytes < worst.bytes)) {
        worst = limit;
      }
    }
    return worst;
  }

  private static MemoryBudgetException refusal(
      String what, MemoryPrediction prediction, MemoryPlace place, Limit limit) {
    return new MemoryBudgetException(
        what
            + " would take "
            + prediction.bytes(place)
            + " B of "
            + place.label()
            + " memory a rank, and "
            + limit.name
            + " is "
            + limit.bytes
            + " B",
        "raise it, or take less: see docs/memory.md; memory-policy=off checks nothing",
        Optional.of(prediction));
  }

  /** Sets a lever, if it has another value. */
  public static Step set(Lever lever, long value) {
    return query -> query.value(lever) == value ? null : query.with(lever, value);
  }

  /**
   * Halves a lever.
   *
   * @param from where to begin, if it is not lower already
   * @param to the lowest value, 1 or more
   */
  public static Step halve(Lever lever, long from, long to) {
    return query -> {
      long now = Math.min(query.value(lever, from), from);
      return now / 2 < to ? null : query.with(lever, now / 2);
    };
  }
}

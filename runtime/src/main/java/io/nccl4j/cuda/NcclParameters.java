package io.nccl4j.cuda;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Provider;
import io.nccl4j.Unstable;
import java.util.List;
import java.util.Optional;

/**
 * The parameters that NCCL publishes: a few of its variables, with their effective values in this
 * process, whatever their source. NCCL 2.30.4 or newer.
 *
 * <p>NCCL 2.30 publishes six, of logging; with {@code NCCL_PARAM_DUMP_ALL=1} nine. Others cannot be
 * queried.
 *
 * <p>All methods throw {@link BackendUnavailableException} without the cuda backend, and {@link
 * InvalidUsageException} with an older NCCL. Any thread may call them.
 */
@Unstable
public final class NcclParameters {
  private NcclParameters() {}

  /** The names, for example {@code NCCL_DEBUG}. */
  public static List<String> keys() {
    return Provider.get(NcclProvider.class).parameterKeys();
  }

  /** The value in effect, as text; empty if NCCL does not know the name. */
  public static Optional<String> get(String key) {
    return Provider.get(NcclProvider.class).parameter(key);
  }

  /** All of {@link #keys()} with their values, a line {@code name=value} for each. */
  public static String dump() {
    StringBuilder text = new StringBuilder();
    for (String key : keys()) {
      text.append(key).append('=').append(get(key).orElse("")).append('\n');
    }
    return text.toString();
  }
}

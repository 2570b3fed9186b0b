package io.nccl4j.internal.cuda;

import io.nccl4j.NcclException;
import io.nccl4j.internal.cuda.nccl.CudaRank;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** A graph as the streams see it into which it was launched. */
interface LaunchedGraph {
  /** The ranks whose operations it holds. */
  List<CudaRank> ranks();

  /** A launch has run; returns the failure of a rank in it, or null. Under the stream's guard. */
  @Nullable NcclException passed();

  /** Fails its ranks when a launch has been waited for longer than operations may take. */
  void checkDeadline(long waitedNanos);

  /** Whether it uses a buffer or a part of it. */
  boolean uses(Object buffer);

  /** What it waits for, as far as can be seen here. */
  String describe();
}

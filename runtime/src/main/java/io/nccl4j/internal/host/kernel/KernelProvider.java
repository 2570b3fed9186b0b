package io.nccl4j.internal.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;

/**
 * A set of faster kernels that may or may not be usable in this JVM. It is loaded by name, so that
 * nothing links to the modules it needs.
 */
public interface KernelProvider {
  /** The kernel to use: a faster one, or {@code generic} itself, which has the same results. */
  FoldKernel kernel(DataType type, ReduceOp.Kind kind, BlockFold generic);

  /** What this set is made of, for logs and reports. */
  String description();
}

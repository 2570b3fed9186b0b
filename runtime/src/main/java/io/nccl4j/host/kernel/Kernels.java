package io.nccl4j.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * The kernels of this JVM, chosen once: those of the Vector API if its module is there and fits this
 * JDK, otherwise the ones that go through heap arrays.
 */
public final class Kernels {
  private static final Logger LOG = LogManager.getLogger(Kernels.class);
  private static final String VECTOR_MODULE = "jdk.incubator.vector";
  private static final String VECTOR_KERNELS = "io.nccl4j.host.vector.VectorKernels";

  private static final FoldKernel[][] KERNELS =
      new FoldKernel[DataType.values().length][ReduceOp.Kind.values().length];
  private static final String DESCRIPTION = choose();

  private Kernels() {}

  /** The kernel for a data type and a reduction; always the same object. */
  public static FoldKernel get(DataType type, ReduceOp.Kind kind) {
    return KERNELS[type.ordinal()][kind.ordinal()];
  }

  /** Which kernels were chosen and, if not the fastest, why: one line without a full stop. */
  public static String description() {
    return DESCRIPTION;
  }

  private static String choose() {
    Optional<Module> incubator = ModuleLayer.boot().findModule(VECTOR_MODULE);
    if (incubator.isEmpty()) {
      return fallBack(VECTOR_MODULE + " is not there: add --add-modules " + VECTOR_MODULE);
    }
    try {
      // Not required in the module descriptor, which would make the module mandatory.
      Kernels.class.getModule().addReads(incubator.get());
      KernelProvider provider =
          (KernelProvider) Class.forName(VECTOR_KERNELS).getDeclaredConstructor().newInstance();
      fill(provider);
      return provider.description();
    } catch (ReflectiveOperationException | LinkageError e) {
      Throwable cause = e.getCause() != null ? e.getCause() : e;
      return fallBack(VECTOR_MODULE + " of Java " + Runtime.version() + " does not fit: " + cause);
    }
  }

  private static String fallBack(String why) {
    fill(null);
    String description = "heap arrays (" + why + ")";
    LOG.info("host reductions use {}", description);
    return description;
  }

  private static void fill(@Nullable KernelProvider provider) {
    for (DataType type : DataType.values()) {
      for (ReduceOp.Kind kind : ReduceOp.Kind.values()) {
        BlockFold generic = generic(type, kind);
        KERNELS[type.ordinal()][kind.ordinal()] =
            provider == null ? generic : provider.kernel(type, kind, generic);
      }
    }
  }

  /** The kernel that needs no optional module. */
  static BlockFold generic(DataType type, ReduceOp.Kind kind) {
    boolean extreme = kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
    return switch (type) {
      case INT8, UINT8, INT32, UINT32 -> new IntFold(type, kind);
      case INT64, UINT64 -> new LongFold(type, kind);
      case FLOAT64 -> extreme ? new LongFold(type, kind) : new DoubleFold(type, kind);
      case FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 ->
          extreme ? new IntFold(type, kind) : new FloatFold(type, kind);
    };
  }
}

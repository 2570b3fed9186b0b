package io.nccl4j.internal.host.kernel;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.machine.CompilerThreads;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;
import org.jspecify.annotations.Nullable;

/**
 * The kernels of this JVM. They use the Vector API if its module is present and fits this JDK, and
 * the optimizing compiler is on; otherwise they go through heap arrays. This is decided once.
 */
public final class Kernels {
  private static final Logger LOG = LogManager.getLogger(Kernels.class);
  private static final String VECTOR_MODULE = "jdk.incubator.vector";
  private static final String VECTOR_KERNELS = "io.nccl4j.internal.host.vector.VectorKernels";

  /**
   * What HotSpot says in {@code java.vm.info} if nothing but its fast compiler may compile. JDK 27
   * does not say it any more.
   */
  private static final String NO_OPTIMIZER = "emulated-client";

  /** What it says if nothing is compiled. */
  private static final String NO_COMPILER = "interpreted mode";

  private static final KernelProvider GENERIC =
      new KernelProvider() {
        @Override
        public FoldKernel kernel(DataType type, ReduceOp.Kind kind, BlockFold generic) {
          return generic;
        }

        @Override
        public String description() {
          return "heap arrays";
        }
      };

  /** Made when first asked for: making all of them would delay a program's start. */
  private static final @Nullable FoldKernel[][] KERNELS =
      new FoldKernel[DataType.values().length][ReduceOp.Kind.values().length];

  private static final KernelProvider PROVIDER;
  private static final String DESCRIPTION;

  static {
    KernelProvider provider = GENERIC;
    String description;
    Optional<Module> incubator = ModuleLayer.boot().findModule(VECTOR_MODULE);
    if (incubator.isEmpty()) {
      description = fallBack(VECTOR_MODULE + " is missing: add --add-modules " + VECTOR_MODULE);
    } else if (!optimizes(System.getProperty("java.vm.info", ""))) {
      description =
          fallBack(
              "the optimizing compiler is off, so each vector would be an object: remove -Xint or"
                  + " -XX:TieredStopAtLevel");
    } else {
      try {
        provider = load(incubator.get());
        description = provider.description();
      } catch (ReflectiveOperationException | LinkageError e) {
        Throwable cause = e.getCause() != null ? e.getCause() : e;
        description =
            fallBack(VECTOR_MODULE + " of Java " + Runtime.version() + " does not fit: " + cause);
      }
    }
    PROVIDER = provider;
    DESCRIPTION = description;
  }

  private Kernels() {}

  /** Whether the compiler runs that keeps vectors in registers. */
  private static boolean optimizes(String vm) {
    return !vm.contains(NO_OPTIMIZER)
        && !vm.contains(NO_COMPILER)
        && CompilerThreads.anyOptimizes();
  }

  /**
   * The kernel for a data type and a reduction; always the same object. The first call for each
   * pair may take milliseconds, and so may the kernel's first calls until they are compiled.
   */
  public static FoldKernel get(DataType type, ReduceOp.Kind kind) {
    // A race is harmless: kernels have final fields only, and create() makes one of each.
    FoldKernel kernel = KERNELS[type.ordinal()][kind.ordinal()];
    return kernel != null ? kernel : create(type, kind);
  }

  /** Which kernels were chosen and, if not the fastest, why: one line without a full stop. */
  public static String description() {
    return DESCRIPTION;
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

  private static synchronized FoldKernel create(DataType type, ReduceOp.Kind kind) {
    FoldKernel kernel = KERNELS[type.ordinal()][kind.ordinal()];
    if (kernel == null) {
      kernel = PROVIDER.kernel(type, kind, generic(type, kind));
      KERNELS[type.ordinal()][kind.ordinal()] = kernel;
    }
    return kernel;
  }

  private static KernelProvider load(Module incubator) throws ReflectiveOperationException {
    // Not required in the module descriptor, which would make the module mandatory.
    Kernels.class.getModule().addReads(incubator);
    KernelProvider provider =
        (KernelProvider) Class.forName(VECTOR_KERNELS).getDeclaredConstructor().newInstance();
    // Links against the incubator: what does not fit this JDK shows here, not in an operation.
    provider.kernel(
        DataType.FLOAT32, ReduceOp.Kind.SUM, generic(DataType.FLOAT32, ReduceOp.Kind.SUM));
    provider.kernel(
        DataType.BFLOAT16, ReduceOp.Kind.SUM, generic(DataType.BFLOAT16, ReduceOp.Kind.SUM));
    return provider;
  }

  private static String fallBack(String why) {
    String description = GENERIC.description() + " (" + why + ")";
    LOG.info("host reductions use {}", description);
    return description;
  }
}

package io.nccl4j.internal.host.vector;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.internal.host.kernel.BlockFold;
import io.nccl4j.internal.host.kernel.FoldKernel;
import io.nccl4j.internal.host.kernel.KernelProvider;
import io.nccl4j.internal.host.kernel.Templates;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.util.HashMap;
import java.util.Map;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorShape;
import jdk.incubator.vector.VectorSpecies;
import org.jspecify.annotations.Nullable;

/**
 * The kernels on vectors. Created once, by {@link io.nccl4j.internal.host.kernel.Kernels}, by name.
 */
public final class VectorKernels implements KernelProvider {
  private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

  /** Extremes of floats need masks, which shapes of fewer lanes may not have instructions for. */
  private static final int MASKED_LANES = 8;

  /** The shape in which is folded what is shorter than the widest vector. */
  private static final VectorShape NARROW = VectorShape.S_128_BIT;

  private static final MethodType LOOP =
      MethodType.methodType(
          void.class, long.class, long.class, long.class, long.class, int.class, int.class);

  private final Map<Spec, MethodHandle> loops = new HashMap<>();
  private final byte[] laneFold = Templates.bytes(LaneFold.class);
  private final byte[] bfloat16Fold = Templates.bytes(Bfloat16Fold.class);

  /** Creates the set. */
  public VectorKernels() {}

  @Override
  public FoldKernel kernel(DataType type, ReduceOp.Kind kind, BlockFold generic) {
    VectorSpecies<?> lanes = lanes(type, kind);
    if (lanes == null) {
      return generic;
    }
    boolean isNarrow = isMasked(type, kind) || lanes.vectorBitSize() <= NARROW.vectorBitSize();
    VectorSpecies<?> narrow = isNarrow ? lanes : lanes.withShape(NARROW);
    return new VectorFold(this, type, lanes, narrow, kind, generic);
  }

  @Override
  public String description() {
    return "Vector API " + FloatVector.SPECIES_PREFERRED.vectorBitSize() + " bit";
  }

  private static boolean isMasked(DataType type, ReduceOp.Kind kind) {
    return type.isFloatingPoint() && (kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX);
  }

  private static @Nullable VectorSpecies<?> lanes(DataType type, ReduceOp.Kind kind) {
    if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
      return null;
    }
    if (!type.isFloatingPoint() && kind == ReduceOp.Kind.AVG) {
      return null;
    }
    if (isMasked(type, kind) && FloatVector.SPECIES_PREFERRED.length() < MASKED_LANES) {
      return null;
    }
    return switch (type) {
      case INT8, UINT8 -> ByteVector.SPECIES_PREFERRED;
      case INT32, UINT32 -> IntVector.SPECIES_PREFERRED;
      case INT64, UINT64 -> LongVector.SPECIES_PREFERRED;
      case FLOAT32 -> FloatVector.SPECIES_PREFERRED;
      case FLOAT64 -> DoubleVector.SPECIES_PREFERRED;
      case BFLOAT16 -> ShortVector.SPECIES_PREFERRED;
      default -> null;
    };
  }

  /**
   * The loop of a template's copy, made when first asked for: {@code (long a, long b, long to0,
   * long to1, int bytes, int n)}, addresses all but the last two. It folds a and b, whole vectors
   * of them, into to0 and, if it writes twice, to1; n is the divisor of an average.
   */
  synchronized MethodHandle loop(Spec spec) {
    return loops.computeIfAbsent(spec, this::define);
  }

  private MethodHandle define(Spec spec) {
    byte[] template = spec.lanes().elementType() == short.class ? bfloat16Fold : laneFold;
    try {
      MethodHandles.Lookup copy = LOOKUP.defineHiddenClassWithClassData(template, spec, true);
      return copy.findStatic(copy.lookupClass(), "fold", LOOP);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no loop for " + spec, e);
    }
  }
}

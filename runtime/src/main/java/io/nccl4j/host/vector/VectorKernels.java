package io.nccl4j.host.vector;

import io.nccl4j.DataType;
import io.nccl4j.ReduceOp;
import io.nccl4j.host.kernel.BlockFold;
import io.nccl4j.host.kernel.FoldKernel;
import io.nccl4j.host.kernel.KernelProvider;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import java.lang.reflect.Constructor;
import java.util.HashMap;
import java.util.Map;
import jdk.incubator.vector.ByteVector;
import jdk.incubator.vector.DoubleVector;
import jdk.incubator.vector.FloatVector;
import jdk.incubator.vector.IntVector;
import jdk.incubator.vector.LongVector;
import jdk.incubator.vector.ShortVector;
import jdk.incubator.vector.VectorSpecies;
import org.jspecify.annotations.Nullable;

/** The kernels on vectors. Created once, by {@link io.nccl4j.host.kernel.Kernels}, by name. */
public final class VectorKernels implements KernelProvider {
  private static final MethodHandles.Lookup LOOKUP = MethodHandles.lookup();

  /** Extremes of floats need masks, which shapes of fewer lanes may not have instructions for. */
  private static final int MASKED_LANES = 8;

  private final Map<Spec, Constructor<? extends FoldKernel>> copies = new HashMap<>();
  private final byte[] laneFold = template(LaneFold.class);
  private final byte[] bfloat16Fold = template(Bfloat16Fold.class);

  /** Creates the set. */
  public VectorKernels() {}

  @Override
  public FoldKernel kernel(DataType type, ReduceOp.Kind kind, BlockFold generic) {
    Spec spec = spec(type, kind);
    if (spec == null) {
      return generic;
    }
    byte[] template = type == DataType.BFLOAT16 ? bfloat16Fold : laneFold;
    try {
      return copies.computeIfAbsent(spec, s -> copy(template, s)).newInstance(generic);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no kernel for " + spec, e);
    }
  }

  @Override
  public String description() {
    return "Vector API " + FloatVector.SPECIES_PREFERRED.vectorBitSize() + " bit";
  }

  private static @Nullable Spec spec(DataType type, ReduceOp.Kind kind) {
    if (kind == ReduceOp.Kind.PRE_MUL_SUM) {
      return null;
    }
    boolean ordered = kind == ReduceOp.Kind.MIN || kind == ReduceOp.Kind.MAX;
    boolean unsigned = type.isUnsignedInteger();
    if (!type.isFloatingPoint() && kind == ReduceOp.Kind.AVG || unsigned && ordered) {
      return null;
    }
    if (type.isFloatingPoint()
        && ordered
        && FloatVector.SPECIES_PREFERRED.length() < MASKED_LANES) {
      return null;
    }
    VectorSpecies<?> lanes =
        switch (type) {
          case INT8, UINT8 -> ByteVector.SPECIES_PREFERRED;
          case INT32, UINT32 -> IntVector.SPECIES_PREFERRED;
          case INT64, UINT64 -> LongVector.SPECIES_PREFERRED;
          case FLOAT32 -> FloatVector.SPECIES_PREFERRED;
          case FLOAT64 -> DoubleVector.SPECIES_PREFERRED;
          case BFLOAT16 -> ShortVector.SPECIES_PREFERRED;
          default -> null;
        };
    return lanes == null ? null : new Spec(lanes, kind);
  }

  private static byte[] template(Class<?> type) {
    try (InputStream in = type.getResourceAsStream(type.getSimpleName() + ".class")) {
      if (in == null) {
        throw new NoClassDefFoundError(type.getName());
      }
      return in.readAllBytes();
    } catch (IOException e) {
      throw new LinkageError("cannot read " + type, e);
    }
  }

  private static Constructor<? extends FoldKernel> copy(byte[] template, Spec spec) {
    try {
      MethodHandles.Lookup copy = LOOKUP.defineHiddenClassWithClassData(template, spec, true);
      return copy.lookupClass()
          .asSubclass(FoldKernel.class)
          .getDeclaredConstructor(BlockFold.class);
    } catch (ReflectiveOperationException e) {
      throw new LinkageError("no kernel for " + spec, e);
    }
  }
}

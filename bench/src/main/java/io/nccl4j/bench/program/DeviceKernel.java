package io.nccl4j.bench.program;

import io.nccl4j.DataType;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.options.Options;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclDeviceRequirements.GinConnection;
import java.util.Arrays;
import java.util.List;
import java.util.stream.Collectors;

/**
 * Kernels that communicate by themselves, over NCCL's device API: what nccl-tests calls device
 * implementations, under its numbers.
 */
public enum DeviceKernel {
  /** Loads of all ranks' elements, stores to all ranks, one element at a time. */
  ALL_REDUCE("allreduce", 1, Way.LSA),
  /** The same, 16 bytes at a time. */
  ALL_REDUCE_PACKED("allreduce", 2, Way.LSA),
  /** Loads that sum in the switch, and stores that it multiplies. */
  ALL_REDUCE_MULTIMEM("allreduce", 3, Way.MULTIMEM),
  /** The same, 16 bytes at a time. */
  ALL_REDUCE_MULTIMEM_PACKED("allreduce", 4, Way.MULTIMEM),
  /** Stores into the other ranks' memory, one element at a time. */
  ALL_TO_ALL("alltoall", 1, Way.LSA),
  /** The same, 16 bytes at a time. */
  ALL_TO_ALL_PACKED("alltoall", 2, Way.LSA),
  /** Everything through the network. */
  ALL_TO_ALL_GIN("alltoall", 3, Way.GIN),
  /** Through the network what memory does not reach. */
  ALL_TO_ALL_HYBRID("alltoall", 4, Way.GIN);

  /** How kernels reach other ranks. */
  public enum Way {
    /** By loads and stores. */
    LSA("lsa.ptx"),
    /** By multicast. */
    MULTIMEM("multimem.ptx"),
    /** Through the network. */
    GIN("gin.ptx");

    private final String module;

    Way(String module) {
      this.module = module;
    }

    /** The file with the kernels. */
    public String module() {
      return module;
    }

    /** Whether kernels need the memory of all ranks within reach. */
    public boolean needsLsa() {
      return this != GIN;
    }

    /**
     * What the device communicator has to hold.
     *
     * @param headers version of NCCL's headers that the kernels were compiled with
     * @param blocks of each kernel
     */
    public NcclDeviceRequirements requirements(int headers, int blocks) {
      NcclDeviceRequirements.Builder builder = NcclDeviceRequirements.builder(headers);
      if (this == GIN) {
        builder.barriers(blocks).ginSignals(1).ginConnection(GinConnection.FULL);
      } else {
        builder.lsaBarriers(blocks).lsaMultimem(this == MULTIMEM);
      }
      return builder.build();
    }
  }

  private final String command;
  private final int number;
  private final Way way;

  DeviceKernel(String command, int number, Way way) {
    this.command = command;
    this.number = number;
    this.way = way;
  }

  /**
   * The kernel that options ask for.
   *
   * @throws InvalidArgumentException if the program has no such kernel, or the kernel no such type
   *     or reduction
   */
  public static DeviceKernel of(Program program, Options options) {
    int asked = options.setup().device().number();
    List<DeviceKernel> all =
        Arrays.stream(values()).filter(one -> one.command.equals(program.command())).toList();
    for (DeviceKernel one : all) {
      if (one.number == asked) {
        options.types().forEach(one::suffix);
        one.requireSum(program, options);
        return one;
      }
    }
    throw new InvalidArgumentException(
        program.command() + " has no device implementation " + asked,
        all.isEmpty()
            ? "omit -D; "
                + Arrays.stream(values())
                    .map(one -> one.command)
                    .distinct()
                    .collect(Collectors.joining(" and "))
                + " have some"
            : "use -D 0 to " + all.getLast().number);
  }

  private void requireSum(Program program, Options options) {
    if (program.reduces() && !options.ops().equals(List.of(ReduceOp.Kind.SUM))) {
      throw new InvalidArgumentException(
          "device implementations only sum", "use -o sum, or omit -D");
    }
  }

  /** How it reaches other ranks. */
  public Way way() {
    return way;
  }

  /** The name of the kernel for a type. */
  public String kernel(DataType type) {
    return "nccl4j_" + command + number + suffix(type);
  }

  /** Sums are made in the type, without regard to its sign; what is moved has only a width. */
  private String suffix(DataType type) {
    if (way == Way.GIN) {
      return "";
    }
    if (command.equals("alltoall")) {
      return "_" + 8 * type.byteSize();
    }
    boolean summed =
        switch (type) {
          case INT8, UINT8 -> way == Way.LSA;
          case BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2 -> false;
          default -> true;
        };
    if (!summed) {
      throw new InvalidArgumentException(
          "device implementation " + number + " of " + command + " has no " + type.label(),
          "use another type, or omit -D");
    }
    return "_" + (type.isFloatingPoint() ? type.label() : "u" + 8 * type.byteSize());
  }

  /** The number that a kernel takes: elements of a block, or through the network its bytes. */
  public long count(Case of) {
    return of.shape().count() * (way == Way.GIN ? of.type().byteSize() : 1);
  }
}

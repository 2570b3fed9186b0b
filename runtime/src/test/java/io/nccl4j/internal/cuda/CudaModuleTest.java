package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.CudaException;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaKernel.Dim;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.PtxException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Kernels of the program's own: over the stand-in, which has C functions of their names. */
@SuppressWarnings("try") // a module is closed early
class CudaModuleTest {
  private static final int COUNT = CudaRig.COUNT;

  /** The signatures of standin_kernels.c; the stand-in does not read the bodies. */
  private static final String PTX =
      """
      .version 6.0
      .target sm_70
      .address_size 64
      .visible .entry test_add(.param .u64 values, .param .u32 count, .param .u32 summand) { ret; }
      .visible .entry test_store(.param .u64 to, .param .s8 a, .param .b16 b, .param .f32 c,
          .param .f64 d, .param .align 4 .b8 e[12]) { ret; }
      """;

  private StandIn standIn = StandIn.require();

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
  }

  @AfterEach
  void nothingIsLeft() {
    standIn.reset();
    CudaRig.requireNoLeak();
  }

  private static <T extends NcclException> T refused(Class<T> type, String text, Runnable call) {
    T e = assertThrows(type, call::run);
    assertTrue(String.valueOf(e.getMessage()).contains(text), e.getMessage());
    return e;
  }

  private static void add(CudaModule module, Stream stream, DeviceBuffer buffer, int summand) {
    module.kernel("test_add").launch(stream, new Dim(2), new Dim(16), 0, buffer, COUNT, summand);
  }

  /** Behind one collective and in front of the next, plain and in a graph. */
  @Test
  void runsInStreamOrder() {
    try (CudaRig rig = new CudaRig(2)) {
      CudaRig.outcomes(
              2,
              rank -> {
                Stream stream = rig.streams.get(rank);
                DeviceBuffer in = rig.in.get(rank);
                DeviceBuffer out = rig.out.get(rank);
                try (CudaModule module = CudaRig.device(rank).loadModule(PTX)) {
                  rig.sum(rank);
                  add(module, stream, out, 10);
                  stream.copy(in, out);
                  rig.sum(rank);
                  stream.synchronize();
                  assertArrayEquals(values(26), firstOf(out));
                  stream.beginCapture();
                  add(module, stream, in, 1);
                  rig.sum(rank);
                  try (Graph graph = stream.endCapture();
                      ExecutableGraph twice = graph.instantiate()) {
                    assertEquals(2, graph.nodeCount());
                    twice.launch(stream);
                    twice.launch(stream);
                    stream.synchronize();
                    assertArrayEquals(values(30), firstOf(out));
                    module.close();
                    refused(
                        InvalidUsageException.class,
                        "module of a kernel",
                        () -> twice.launch(stream));
                  }
                }
              })
          .forEach(thrown -> assertInstanceOf(CudaRig.Nothing.class, thrown));
    }
  }

  private static int[] values(int value) {
    return IntStream.range(0, COUNT).map(i -> value).toArray();
  }

  private static int[] firstOf(DeviceBuffer buffer) {
    int[] values = new int[COUNT];
    buffer.copyTo(values);
    return values;
  }

  /** Each kind of argument arrives as it is, also if the caller changes it at once. */
  @Test
  void argumentsArrive() {
    CudaDevice device = CudaRig.device(1);
    try (CudaModule module = device.loadModule(PTX);
        Stream stream = device.newStream();
        DeviceBuffer to = device.allocate(40);
        Arena arena = Arena.ofConfined()) {
      MemorySegment structure = arena.allocateFrom(ValueLayout.JAVA_INT, 5, 6, 7);
      CudaKernel kernel = module.kernel("test_store");
      kernel.launch(
          stream, new Dim(1), new Dim(1), 0, to.address(), (byte) -1, (short) 2, 3f, 4d, structure);
      structure.fill((byte) 0);
      stream.synchronize();
      double[] stored = to.slice(0, 32).toDoubles();
      assertArrayEquals(new double[] {-1, 2, 3, 4}, stored);
      assertArrayEquals(new int[] {18}, to.slice(32, 4).toInts());
      assertSame(kernel, module.kernel("test_store"));
      assertSame(module, kernel.module());
      assertEquals(1024, kernel.maxThreadsPerBlock());
      assertEquals("test_store", kernel.name());
    }
  }

  @Test
  void wrongLaunchesAreRefused() {
    CudaDevice device = CudaRig.device(0);
    try (CudaModule module = device.loadModule(PTX);
        Stream stream = device.newStream();
        Stream elsewhere = CudaRig.device(1).newStream();
        DeviceBuffer far = CudaRig.device(1).allocate(16);
        DeviceBuffer buffer = device.allocate(4 * COUNT)) {
      CudaKernel kernel = module.kernel("test_add");
      Dim one = new Dim(1);
      Class<InvalidArgumentException> wrong = InvalidArgumentException.class;
      refused(
          wrong,
          "kernel test_add got 2 arguments; it takes 3: (.u64, .u32, .u32)",
          () -> kernel.launch(stream, one, one, 0, buffer, 1));
      refused(
          wrong,
          "argument 1 of kernel test_add is java.lang.Long 1; it takes (.u64, .u32, .u32)",
          () -> kernel.launch(stream, one, one, 0, buffer, 1L, 1));
      refused(
          wrong,
          "argument 2 of kernel test_add is null",
          () -> kernel.launch(stream, one, one, 0, buffer, 1, null));
      refused(
          wrong,
          "a buffer is on cuda device 1, the kernel on cuda device 0",
          () -> kernel.launch(stream, one, one, 0, far, 1, 1));
      refused(
          wrong,
          "the stream is on cuda device 1, the module on cuda device 0",
          () -> kernel.launch(elsewhere, one, one, 0, buffer, 1, 1));
      refused(wrong, "at most 1024", () -> kernel.launch(stream, one, new Dim(32, 32, 2), 0));
      refused(wrong, "at most 65535", () -> kernel.launch(stream, new Dim(1, 65_536, 1), one, 0));
      refused(wrong, "0 to 49152", () -> kernel.launch(stream, one, one, 49_153));
      refused(wrong, "each is at least 1", () -> new Dim(1, 0, 1));
      refused(
          wrong,
          "no kernel test_sub; it has test_add, test_store",
          () -> module.kernel("test_sub"));
      try (Stream host = Device.get(Backend.HOST, 0).newStream()) {
        refused(wrong, "not of a cuda device", () -> kernel.launch(host, one, one, 0));
      }
      assertEquals(0, standIn.calls("cuLaunchKernel"));
      add(module, stream, buffer, 1);
      stream.synchronize();
    }
  }

  @Test
  void whatIsInUseStaysOpen() {
    CudaModule module = CudaRig.device(0).loadModule(PTX);
    try (CudaRig rig = new CudaRig(2);
        DeviceBuffer buffer = CudaRig.device(0).allocate(4 * COUNT)) {
      CudaKernel kernel = module.kernel("test_add");
      Stream stream = rig.streams.getFirst();
      // It waits for the other rank, and the kernel for it.
      rig.sum(0);
      add(module, stream, buffer, 1);
      refused(InvalidUsageException.class, "in use by kernel test_add", module::close);
      rig.sum(1);
      stream.synchronize();
      module.close();
      module.close();
      Class<InvalidUsageException> closed = InvalidUsageException.class;
      refused(closed, "module is closed", () -> module.kernel("test_add"));
      refused(closed, "module is closed", () -> kernel.launch(stream, new Dim(1), new Dim(1), 0));
    }
  }

  @Test
  void thePtxIsRefusedWithTheCompilersLog() {
    CudaDevice device = CudaRig.device(0);
    PtxException e =
        refused(
            PtxException.class,
            "CUDA_ERROR_INVALID_PTX: ptxas application ptx input, line 1; fatal",
            () -> device.loadModule(".version 6.0\n").close());
    assertEquals("ptxas application ptx input, line 1; fatal : Missing .target directive", e.log());
    assertInstanceOf(CudaException.class, e.getCause());
    refused(PtxException.class, "CUDA_ERROR_INVALID_IMAGE", () -> device.loadModule("x").close());
  }

  @ParameterizedTest
  @CsvSource({
    "222, update NVIDIA's driver",
    "209, .target that is not newer",
    "221, libnvidia-ptxjitcompiler",
    "2, free device memory",
    "999, cuModuleLoadDataEx failed"
  })
  void loadingFails(int error, String text) {
    standIn.inject("cuModuleLoadDataEx", 1, StandIn.Fault.ERROR, error);
    refused(NcclException.class, text, () -> CudaRig.device(0).loadModule(PTX).close());
  }

  @Test
  void aLaunchThatFailsIsNotQueued() {
    CudaDevice device = CudaRig.device(0);
    try (CudaModule module = device.loadModule(PTX);
        Stream stream = device.newStream();
        DeviceBuffer buffer = device.allocate(4 * COUNT)) {
      standIn.inject("cuLaunchKernel", 1, StandIn.Fault.ERROR, 701);
      refused(CudaException.class, "(701)", () -> add(module, stream, buffer, 1));
      add(module, stream, buffer, 1);
      stream.synchronize();
      standIn.inject("cuModuleGetFunction", 1, StandIn.Fault.ERROR, 500);
      refused(CudaException.class, "(500)", () -> module.kernel("test_store"));
      assertEquals("test_store", module.kernel("test_store").name());
    }
  }
}

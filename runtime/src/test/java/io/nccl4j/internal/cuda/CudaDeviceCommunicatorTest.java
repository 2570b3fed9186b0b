package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaKernel.Dim;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclCommunicator.Window;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclDeviceRequirements.GinConnection;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.Arrays;
import java.util.OptionalLong;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Kernels that communicate by themselves: over the stand-in, whose twins are C functions. */
@SuppressWarnings("try") // some are closed early
class CudaDeviceCommunicatorTest {
  private static final int HEADERS = 23007;
  private static final int COUNT = CudaRig.COUNT;
  private static final NcclDeviceRequirements TWO_BARRIERS =
      NcclDeviceRequirements.builder(HEADERS).lsaBarriers(2).build();

  /** The signature of a kernel that the stand-in has; it does not read the body. */
  static String ptx(int structureBytes) {
    return """
    .version 6.0
    .target sm_70
    .address_size 64
    .visible .entry nccl4j_allreduce1_u32(.param .u64 from, .param .u64 at, .param .u64 to,
        .param .u64 there, .param .u64 count, .param .align 8 .b8 comm[%d]) { ret; }
    """
        .formatted(structureBytes);
  }

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

  /** One rank of a pair, with its windows; all closed with it. */
  private record Part(
      NcclCommunicator nccl,
      Stream stream,
      Window in,
      Window out,
      CudaModule module,
      CudaKernel sum)
      implements AutoCloseable {
    static Part of(CudaRig rig, int rank) {
      NcclCommunicator nccl = NcclCommunicator.of(rig.communicators.get(rank));
      CudaModule module = CudaRig.device(rank).loadModule(ptx(240));
      return new Part(
          nccl,
          rig.streams.get(rank),
          nccl.registerWindow(rig.in.get(rank), true, false),
          nccl.registerWindow(rig.out.get(rank), true, false),
          module,
          module.kernel("nccl4j_allreduce1_u32"));
    }

    void launch(NcclDeviceCommunicator device) {
      sum.launch(stream, new Dim(2), new Dim(32), 0, in, 0L, out, 0L, (long) COUNT, device);
    }

    int[] sums() {
      int[] all = new int[COUNT];
      try (DeviceBuffer first = out.buffer().slice(0, 4L * COUNT)) {
        first.copyTo(all);
      }
      return all;
    }

    @Override
    public void close() {
      stream.synchronize();
      in.close();
      out.close();
      module.close();
    }
  }

  /** What a rank of a pair does. */
  private interface Work {
    void run(Part part) throws Exception;
  }

  private static void onTwoRanks(Work work) {
    try (CudaRig rig = new CudaRig(2)) {
      CudaRig.outcomes(
              2,
              rank -> {
                try (Part part = Part.of(rig, rank)) {
                  work.run(part);
                }
              })
          .forEach(
              thrown -> {
                if (!(thrown instanceof CudaRig.Nothing)) {
                  throw new AssertionError("a rank failed", thrown);
                }
              });
    }
  }

  private static <T extends NcclException> void refused(Class<T> type, String text, Runnable call) {
    T e = assertThrows(type, call::run);
    assertTrue(String.valueOf(e.getMessage()).contains(text), e.getMessage());
  }

  private static int[] filled(int value) {
    int[] all = new int[COUNT];
    Arrays.fill(all, value);
    return all;
  }

  @Test
  void kernelsMeetAndSum() {
    onTwoRanks(
        part -> {
          try (NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(TWO_BARRIERS)) {
            assertSame(part.nccl, device.communicator());
            assertSame(TWO_BARRIERS, device.requirements());
            assertEquals(part.nccl.rank(), device.lsaRank());
            assertEquals(2, device.lsaSize());
            MemorySegment structure = device.structure();
            assertEquals(240, structure.byteSize());
            assertTrue(structure.isReadOnly());
            assertEquals(HEADERS, structure.get(ValueLayout.JAVA_INT, 4));
            for (int i = 0; i < 3; i++) {
              part.launch(device);
            }
            part.stream.synchronize();
            assertArrayEquals(filled(3), part.sums());
            refused(
                InvalidUsageException.class,
                "device communicator is closed",
                () -> {
                  device.close();
                  device.close();
                  part.launch(device);
                });
            refused(InvalidUsageException.class, "is closed", device::structure);
          }
        });
  }

  /** A structure of a program's own that holds it is passed like any other. */
  @Test
  void passedByValueAndByAddress() {
    onTwoRanks(
        part -> {
          try (NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(TWO_BARRIERS)) {
            part.sum.launch(
                part.stream,
                new Dim(1),
                new Dim(1),
                0,
                part.in,
                0L,
                part.out,
                0L,
                (long) COUNT,
                device.structure());
            part.stream.synchronize();
            assertArrayEquals(filled(3), part.sums());
          }
        });
  }

  @Test
  void inGraphs() {
    onTwoRanks(
        part -> {
          NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(TWO_BARRIERS);
          part.stream.beginCapture();
          part.launch(device);
          try (Graph graph = part.stream.endCapture();
              ExecutableGraph executable = graph.instantiate()) {
            executable.launch(part.stream);
            executable.launch(part.stream);
            part.stream.synchronize();
            assertArrayEquals(filled(3), part.sums());
            device.close();
            assertThrows(InvalidUsageException.class, () -> executable.launch(part.stream));
          }
        });
  }

  @Test
  void nothingIsClosedUnderAKernel() {
    try (CudaRig rig = new CudaRig(2)) {
      Part[] parts = new Part[2];
      NcclDeviceCommunicator[] devices = new NcclDeviceCommunicator[2];
      CudaRig.outcomes(
          2,
          rank -> {
            parts[rank] = Part.of(rig, rank);
            devices[rank] = parts[rank].nccl.createDeviceCommunicator(TWO_BARRIERS);
          });
      // It waits for rank 1.
      parts[0].launch(devices[0]);
      String user = "in use by kernel nccl4j_allreduce1_u32";
      refused(InvalidUsageException.class, user, devices[0]::close);
      refused(InvalidUsageException.class, user, parts[0].in::close);
      refused(InvalidUsageException.class, user, parts[0].module::close);
      refused(InvalidUsageException.class, user, rig.communicators.get(0)::close);
      assertThrows(InvalidUsageException.class, () -> rig.in.get(0).close());
      parts[1].launch(devices[1]);
      for (Part part : parts) {
        part.close();
      }
      // Device communicators end with their communicators.
      rig.communicators.forEach(Communicator::close);
      refused(InvalidUsageException.class, "is closed", devices[0]::structure);
      devices[0].close();
    }
  }

  @Test
  void addressesOfWindows() {
    onTwoRanks(
        part -> {
          long own = part.in.buffer().address();
          int rank = part.nccl.rank();
          assertEquals(OptionalLong.of(own + 8), part.in.peerAddress(rank, 8));
          assertEquals(own, part.in.lsaAddress(rank, 0));
          assertEquals(
              part.in.lsaAddress(1 - rank, 4), part.in.peerAddress(1 - rank, 4).orElseThrow());
          assertEquals(OptionalLong.empty(), part.in.multimemAddress(0));
          refused(InvalidArgumentException.class, "pass 0 to 1", () -> part.in.peerAddress(2, 0));
          refused(
              InvalidArgumentException.class, "the rank is -1", () -> part.in.lsaAddress(-1, 0));
          long bytes = part.in.buffer().byteSize();
          for (long outside : new long[] {-1, bytes}) {
            refused(
                InvalidArgumentException.class,
                "the offset is " + outside,
                () -> part.in.peerAddress(0, outside));
          }
          try (NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(TWO_BARRIERS)) {
            assertEquals(OptionalLong.empty(), device.multimemAddress(part.in, 0));
            part.in.close();
            refused(
                InvalidUsageException.class,
                "window is closed",
                () -> device.multimemAddress(part.in, 0));
            refused(InvalidUsageException.class, "window is closed", () -> part.launch(device));
          }
          refused(InvalidUsageException.class, "window is closed", () -> part.in.peerAddress(0, 0));
        });
  }

  @Test
  void kernelsOfOtherHeadersOrDevices() {
    onTwoRanks(
        part -> {
          NcclDeviceRequirements old = NcclDeviceRequirements.builder(22907).lsaBarriers(1).build();
          try (NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(old);
              CudaModule elsewhere = CudaRig.device(5).loadModule(ptx(224))) {
            assertEquals(224, device.structure().byteSize());
            assertEquals(part.nccl.rank(), device.lsaRank());
            assertEquals(2, device.lsaSize());
            refused(
                InvalidArgumentException.class,
                "argument 5 of kernel nccl4j_allreduce1_u32 is a device communicator of 224 bytes,"
                    + " made for the headers of NCCL 2.29.7",
                () -> part.launch(device));
            try (Stream stream = CudaRig.device(5).newStream()) {
              refused(
                  InvalidArgumentException.class,
                  "a device communicator of 224 bytes",
                  () ->
                      elsewhere
                          .kernel("nccl4j_allreduce1_u32")
                          .launch(stream, new Dim(1), new Dim(1), 0, 0L, 0L, 0L, 0L, 0L, device));
            }
          }
        });
  }

  @Test
  void whatCannotWorkIsRefusedBeforeNccl() {
    onTwoRanks(
        part -> {
          refused(
              InvalidUsageException.class,
              "install NCCL 2.31.0 or newer",
              () ->
                  part.nccl.createDeviceCommunicator(
                      NcclDeviceRequirements.builder(23100).build()));
          refused(
              InvalidUsageException.class,
              "has no multicast",
              () ->
                  part.nccl.createDeviceCommunicator(
                      NcclDeviceRequirements.builder(HEADERS).lsaMultimem(true).build()));
          refused(
              InvalidUsageException.class,
              "cannot use the network",
              () ->
                  part.nccl.createDeviceCommunicator(
                      NcclDeviceRequirements.builder(HEADERS)
                          .ginConnection(GinConnection.FULL)
                          .build()));
          refused(
              InvalidArgumentException.class,
              "requirements are null",
              () -> part.nccl.createDeviceCommunicator(null));
        });
    assertEquals(0, standIn.calls("ncclDevCommCreate"));
    StandIn.environment("NCCL_WIN_ENABLE", "0");
    try (CudaRig rig = new CudaRig(1)) {
      refused(
          InvalidUsageException.class,
          "has no symmetric memory",
          () ->
              NcclCommunicator.of(rig.communicators.get(0)).createDeviceCommunicator(TWO_BARRIERS));
    } finally {
      StandIn.environment("NCCL_WIN_ENABLE", "");
    }
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      textBlock =
          """
          lsaBarriers    | -1 | 23007 | is -1
          barriers       | 1  | 23007 | no connection
          signals        | 1  | 23007 | no connection
          worldOfRails   | 1  | 23007 | only rails
          connection     | 0  | 22902 | have no GIN connections
          trafficClass   | 1  | 22907 | have no ginTrafficClass
          """)
  void requirementsThatContradict(String what, int value, int headers, String text) {
    NcclDeviceRequirements.Builder builder = NcclDeviceRequirements.builder(headers);
    switch (what) {
      case "lsaBarriers" -> builder.lsaBarriers(value);
      case "barriers" -> builder.barriers(value);
      case "signals" -> builder.ginSignals(value);
      case "worldOfRails" -> builder.worldGinBarriers(value).ginConnection(GinConnection.RAIL);
      case "connection" -> builder.ginConnection(GinConnection.FULL);
      default -> builder.ginTrafficClass(value);
    }
    refused(InvalidArgumentException.class, text, builder::build);
  }

  @Test
  void headersBeforeTheVersionChecks() {
    refused(
        InvalidUsageException.class,
        "headers of NCCL 2.29.2 or newer",
        () -> NcclDeviceRequirements.builder(22809));
  }

  /** NCCL has taken the memory away: a kernel would break the device's context. */
  @Test
  void nothingIsLaunchedAfterAFailure() {
    onTwoRanks(
        part -> {
          NcclDeviceCommunicator device = part.nccl.createDeviceCommunicator(TWO_BARRIERS);
          part.stream.beginCapture();
          part.launch(device);
          try (Graph graph = part.stream.endCapture();
              ExecutableGraph executable = graph.instantiate()) {
            part.nccl.abort();
            assertThrows(AbortedException.class, () -> part.launch(device));
            assertThrows(AbortedException.class, device::structure);
            assertThrows(AbortedException.class, () -> part.in.peerAddress(0, 0));
            assertThrows(InvalidUsageException.class, () -> executable.launch(part.stream));
          }
          device.close();
        });
  }

  @Test
  void failuresOfNccl() {
    standIn.inject("ncclDevCommCreate@0", 1, StandIn.Fault.ERROR, 3);
    try (CudaRig rig = new CudaRig(0, 2, CudaRig.config(1_000, 1_000, 500))) {
      Throwable failed =
          CudaRig.outcomes(
                  2,
                  rank ->
                      NcclCommunicator.of(rig.communicators.get(rank))
                          .createDeviceCommunicator(TWO_BARRIERS))
              .getFirst();
      assertTrue(
          String.valueOf(failed.getMessage()).contains("creation of a device communicator"),
          failed.toString());
      assertEquals(Communicator.State.FAILED, rig.communicators.get(0).state());
    }
  }

  @Test
  void ranksThatDoNotCome() {
    try (CudaRig rig = new CudaRig(0, 2, CudaRig.config(300, 20_000, 500))) {
      Throwable late =
          CudaRig.outcome(
              rank ->
                  NcclCommunicator.of(rig.communicators.get(0))
                      .createDeviceCommunicator(TWO_BARRIERS));
      assertTrue(late instanceof DeadlineException, late.toString());
    }
  }
}

package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.bindings.cuda.CUgraphExecUpdateResultInfo_st;
import io.nccl4j.bindings.cuda.CUmemAccessDesc_st;
import io.nccl4j.bindings.cuda.CUmemAllocationProp_st;
import io.nccl4j.bindings.cuda.CUmemFabricHandle_st;
import io.nccl4j.bindings.cuda.CUmemLocation_st;
import io.nccl4j.bindings.cuda.CUmulticastObjectProp_st;
import io.nccl4j.bindings.cuda.CUuuid_st;
import io.nccl4j.bindings.cuda.Cuda;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclCommProperties;
import io.nccl4j.bindings.nccl.ncclConfig_v23000;
import io.nccl4j.bindings.nccl.ncclDevComm;
import io.nccl4j.bindings.nccl.ncclDevCommRequirements;
import io.nccl4j.bindings.nccl.ncclMultimemHandle;
import io.nccl4j.bindings.nccl.ncclSimInfo_v22200;
import io.nccl4j.bindings.nccl.ncclTeam;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import io.nccl4j.bindings.nccl.ncclWaitSignalDesc_t;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.GroupLayout;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.StructLayout;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/**
 * Layouts, constants and initial values of the generated bindings: against written numbers always,
 * and against the real headers by the C compiler where they are installed.
 */
class GeneratedLayoutTest {
  private static final Map<String, GroupLayout> NCCL_STRUCTS =
      Map.of(
          "struct ncclConfig_v23000", ncclConfig_v23000.layout(),
          "struct ncclSimInfo_v22200", ncclSimInfo_v22200.layout(),
          "struct ncclCommProperties", ncclCommProperties.layout(),
          "struct ncclDevCommRequirements", ncclDevCommRequirements.layout(),
          "struct ncclDevComm", ncclDevComm.layout(),
          "struct ncclMultimemHandle", ncclMultimemHandle.layout(),
          "struct ncclTeam", ncclTeam.layout(),
          "ncclUniqueId", ncclUniqueId.layout(),
          "ncclWaitSignalDesc_t", ncclWaitSignalDesc_t.layout());

  private static final Map<String, GroupLayout> CUDA_STRUCTS =
      Map.of(
          "struct CUgraphExecUpdateResultInfo_st", CUgraphExecUpdateResultInfo_st.layout(),
          "struct CUmemAccessDesc_st", CUmemAccessDesc_st.layout(),
          "struct CUmemAllocationProp_st", CUmemAllocationProp_st.layout(),
          "struct CUmemFabricHandle_st", CUmemFabricHandle_st.layout(),
          "struct CUmemLocation_st", CUmemLocation_st.layout(),
          "struct CUmulticastObjectProp_st", CUmulticastObjectProp_st.layout(),
          "struct CUuuid_st", CUuuid_st.layout());

  private static final String NCCL_SOURCE =
      """
      #include <stddef.h>
      #include <stdio.h>
      #include "nccl4j_nccl.h"
      #define HOLDS(condition) _Static_assert(condition, #condition)
      static const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
      static const ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
      static const ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
      static const ncclDevCommRequirements_t device = NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER;
      int main(void) {
        fwrite(&config, sizeof config, 1, stdout);
        fwrite(&info, sizeof info, 1, stdout);
        fwrite(&properties, sizeof properties, 1, stdout);
        fwrite(&device, sizeof device, 1, stdout);
        return 0;
      }
      """;

  private static final String CUDA_SOURCE =
      """
      #include <stddef.h>
      #include "nccl4j_cuda.h"
      #define HOLDS(condition) _Static_assert(condition, #condition)
      int main(void) { return 0; }
      """;

  @TempDir Path directory;

  @Test
  void structuresOfNcclHaveTheirNumbers() {
    assertLayout(
        "size@0 magic@8 version@12 blocking@16 cgaClusterSize@20 minCTAs@24 maxCTAs@28 netName@32"
            + " splitShare@40 trafficClass@44 commName@48 collnetEnable@56 CTAPolicy@60"
            + " shrinkShare@64 nvlsCTAs@68 nChannelsPerNetPeer@72 nvlinkCentricSched@76"
            + " graphUsageMode@80 numRmaCtx@84 maxP2pPeers@88 graphStreamOrdering@92 96",
        ncclConfig_v23000.layout());
    assertLayout("size@0 magic@8 version@12 estimatedTime@16 24", ncclSimInfo_v22200.layout());
    assertLayout(
        "size@0 magic@8 version@12 rank@16 nRanks@20 cudaDev@24 nvmlDev@28 deviceApiSupport@32"
            + " multimemSupport@33 ginType@36 nLsaTeams@40 hostRmaSupport@44 railedGinType@48 56",
        ncclCommProperties.layout());
    assertLayout(
        "size@0 magic@8 version@12 resourceRequirementsList@16 teamRequirementsList@24"
            + " lsaMultimem@32 barrierCount@36 lsaBarrierCount@40 railGinBarrierCount@44"
            + " lsaLLA2ABlockCount@48 lsaLLA2ASlotCount@52 ginForceEnable@56 ginContextCount@60"
            + " ginSignalCount@64 ginCounterCount@68 ginConnectionType@72 ginExclusiveContexts@76"
            + " ginQueueDepth@80 ginTrafficClass@84 worldGinBarrierCount@88"
            + " ginStrongSignalsRequired@92 ginVaSignalsRequired@93 96",
        ncclDevCommRequirements.layout());
    assertLayout(
        "magic@0 version@4 rank@8 nRanks@12 nRanks_rcp32@16 lsaRank@20 lsaSize@24"
            + " lsaSize_rcp32@28 windowTable@32 resourceWindow@40 resourceWindow_inlined@48"
            + " hybridWorldGinBarrier@112 lsaMultimem@120 lsaBarrier@128 railGinBarrier@136"
            + " ginConnectionCount@144 ginNetDeviceTypes@145 ginHandles@152 ginSignalCount@184"
            + " ginCounterCount@188 ginSignalShadows@192 ginContextCount@200"
            + " ginConnectionsRailed@204 ginStrongLegacySignals@205 ginContextsRailed@206"
            + " abortFlag@208 hybridLsaBarrier@216 hybridRailGinBarrier@224 worldGinBarrier@232"
            + " 240",
        ncclDevComm.layout());
    assertLayout("opCnt@0 peer@4 sigIdx@8 ctx@12 16", ncclWaitSignalDesc_t.layout());
    assertLayout("nRanks@0 rank@4 stride@8 12", ncclTeam.layout());
    assertLayout("internal@0 128", ncclUniqueId.layout());
  }

  @Test
  void structuresOfCudaHaveTheirNumbers() {
    assertLayout("type@0 id@4 8", CUmemLocation_st.layout());
    assertLayout("location@0 flags@8 12", CUmemAccessDesc_st.layout());
    assertLayout(
        "type@0 requestedHandleTypes@4 location@8 win32HandleMetaData@16 allocFlags@24 32",
        CUmemAllocationProp_st.layout());
    assertLayout(
        "numDevices@0 size@8 handleTypes@16 flags@24 32", CUmulticastObjectProp_st.layout());
    assertLayout(
        "result@0 errorNode@8 errorFromNode@16 24", CUgraphExecUpdateResultInfo_st.layout());
    assertLayout("data@0 64", CUmemFabricHandle_st.layout());
    assertLayout("bytes@0 16", CUuuid_st.layout());
  }

  @Test
  void initialValuesAreNotZeros() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment config = arena.allocate(ncclConfig_v23000.layout());
      NcclStructs.fillConfig(config);
      assertEquals(96, ncclConfig_v23000.size(config));
      assertEquals(0xcafebeef, ncclConfig_v23000.magic(config));
      assertEquals(23007, ncclConfig_v23000.version(config));
      for (MemoryLayout field : ncclConfig_v23000.layout().memberLayouts().subList(3, 21)) {
        long offset = offset(ncclConfig_v23000.layout(), field);
        if (field instanceof ValueLayout.OfInt layout) {
          assertEquals(Integer.MIN_VALUE, config.get(layout, offset), field.toString());
        } else {
          assertEquals(0, config.get(ValueLayout.JAVA_LONG, offset), field.toString());
        }
      }
      MemorySegment info = arena.allocate(ncclSimInfo_v22200.layout());
      NcclStructs.fillSimInfo(info);
      assertEquals(24, ncclSimInfo_v22200.size(info));
      assertEquals(0x74685283, ncclSimInfo_v22200.magic(info));
      assertEquals(23007, ncclSimInfo_v22200.version(info));
      assertEquals(-1f, ncclSimInfo_v22200.estimatedTime(info));
      MemorySegment properties = arena.allocate(ncclCommProperties.layout());
      NcclStructs.fillProperties(properties);
      assertEquals(56, ncclCommProperties.size(properties));
      assertEquals(0xcafebeef, ncclCommProperties.magic(properties));
      assertEquals(23007, ncclCommProperties.version(properties));
    }
  }

  /** The sizes of 2.29.2 and 2.29.7 are those that NCCL 2.30 asserts for them. */
  @Test
  void deviceCommunicatorsHaveTheLayoutOfTheirHeaders() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment requirements = arena.allocate(ncclDevCommRequirements.layout());
      int[][] sizes = {{22902, 72, 200}, {22907, 88, 224}, {23003, 96, 240}, {23007, 96, 240}};
      for (int[] size : sizes) {
        NcclStructs.fillDeviceRequirements(requirements, size[0]);
        assertEquals(size[0], ncclDevCommRequirements.version(requirements));
        assertEquals(size[1], ncclDevCommRequirements.size(requirements));
        assertEquals(size[2], NcclStructs.deviceCommunicatorBytes(size[0]));
      }
      MemorySegment communicator = arena.allocate(ncclDevComm.layout());
      for (int i = 0; i < 240 / 4; i++) {
        communicator.setAtIndex(ValueLayout.JAVA_INT, i, 4 * i);
      }
      assertEquals(12, NcclStructs.lsaRank(communicator, 22902));
      assertEquals(16, NcclStructs.lsaSize(communicator, 22907));
      assertEquals(20, NcclStructs.lsaRank(communicator, 23007));
      assertEquals(24, NcclStructs.lsaSize(communicator, 23007));
      assertEquals(112, NcclStructs.lsaMultimem(communicator, 22907).get(ValueLayout.JAVA_INT, 0));
      assertEquals(120, NcclStructs.lsaMultimem(communicator, 23007).get(ValueLayout.JAVA_INT, 0));
    }
  }

  @Test
  void ncclHeaderAgrees() throws Exception {
    Path include =
        GpuHeaders.find("nccl4j.test.nccl.include", "nccl.h", "NCCL_VERSION_CODE", 23007);
    Path cuda = GpuHeaders.find("nccl4j.test.cuda.include", "cuda.h", "CUDA_VERSION", 13000);
    StringBuilder source = new StringBuilder(NCCL_SOURCE);
    NCCL_STRUCTS.forEach((name, layout) -> appendStruct(source, name, layout));
    assertTrue(appendConstants(source, "nccl.options", Nccl.class) > 60);
    byte[] output = compileAndRun(source.toString(), include, cuda);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment all = arena.allocate(96 + 24 + 56 + 96, 8);
      NcclStructs.fillConfig(all.asSlice(0, 96));
      NcclStructs.fillSimInfo(all.asSlice(96, 24));
      NcclStructs.fillProperties(all.asSlice(96 + 24, 56));
      NcclStructs.fillDeviceRequirements(all.asSlice(96 + 24 + 56, 96), 23007);
      assertEquals(-1, all.mismatch(MemorySegment.ofArray(output)));
    }
  }

  @Test
  void cudaHeaderAgrees() throws Exception {
    Path include = GpuHeaders.find("nccl4j.test.cuda.include", "cuda.h", "CUDA_VERSION", 13000);
    StringBuilder source = new StringBuilder(CUDA_SOURCE);
    CUDA_STRUCTS.forEach((name, layout) -> appendStruct(source, name, layout));
    assertTrue(appendConstants(source, "cuda.options", Cuda.class) > 400);
    compileAndRun(source.toString(), include);
  }

  private static void assertLayout(String expected, GroupLayout layout) {
    StringBuilder found = new StringBuilder();
    for (MemoryLayout member : layout.memberLayouts()) {
      if (member.name().isPresent()) {
        found.append(member.name().get()).append('@').append(offset(layout, member)).append(' ');
      }
    }
    assertEquals(expected, found.append(layout.byteSize()).toString());
  }

  private static long offset(GroupLayout layout, MemoryLayout member) {
    return layout.byteOffset(MemoryLayout.PathElement.groupElement(member.name().orElseThrow()));
  }

  private static void appendStruct(StringBuilder source, String name, GroupLayout layout) {
    source.append("HOLDS(sizeof(%s) == %d);%n".formatted(name, layout.byteSize()));
    source.append("HOLDS(_Alignof(%s) == %d);%n".formatted(name, layout.byteAlignment()));
    appendMembers(source, name, "", 0, layout);
  }

  private static void appendMembers(
      StringBuilder source, String name, String path, long base, GroupLayout layout) {
    for (MemoryLayout member : layout.memberLayouts()) {
      if (member.name().isPresent()) {
        String field = path + member.name().get();
        long offset = base + offset(layout, member);
        source.append("HOLDS(offsetof(%s, %s) == %d);%n".formatted(name, field, offset));
        source.append(
            "HOLDS(sizeof(((%s *) 0)->%s) == %d);%n".formatted(name, field, member.byteSize()));
        if (member instanceof StructLayout nested) {
          appendMembers(source, name, field + ".", offset, nested);
        }
      }
    }
  }

  private static int appendConstants(StringBuilder source, String options, Class<?> holder)
      throws Exception {
    Map<String, Object> constants = new TreeMap<>();
    for (String name : ManifestTest.chosen("constant", options)) {
      constants.put(name, holder.getMethod(name).invoke(null));
    }
    constants.forEach(
        (name, value) ->
            source.append(
                value instanceof Integer
                    ? "HOLDS((int) %s == (int) %sLL);%n".formatted(name, value)
                    : "HOLDS(%s == %s);%n".formatted(name, value)));
    return constants.size();
  }

  /** What the program writes. */
  private byte[] compileAndRun(String text, Path... folders) throws Exception {
    GpuHeaders.skipIf(!LibcHeaderTest.hasCompiler(), "no C compiler named cc");
    Path source = Files.writeString(directory.resolve("probe.c"), text);
    Path program = directory.resolve("probe");
    List<String> command = new ArrayList<>(List.of("cc", "-std=gnu11"));
    command.add("-I" + ManifestTest.ROOT.resolve("headers"));
    for (Path folder : folders) {
      command.add("-I" + folder);
    }
    command.addAll(List.of("-o", program.toString(), source.toString()));
    run(command.toArray(String[]::new));
    return run(program.toString());
  }

  private static byte[] run(String... command) throws IOException, InterruptedException {
    Process process = new ProcessBuilder(List.of(command)).redirectErrorStream(true).start();
    byte[] output = process.getInputStream().readAllBytes();
    assertEquals(0, process.waitFor(), () -> new String(output, StandardCharsets.UTF_8));
    return output;
  }
}

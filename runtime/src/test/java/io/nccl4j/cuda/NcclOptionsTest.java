package io.nccl4j.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Device;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.Setting;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclOptions.GraphUsage;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.junit.jupiter.api.Test;

/** What NCCL is told is checked early, and shown with where it comes from. */
class NcclOptionsTest {
  @Test
  void valuesOutOfRangeAreRefused() {
    List<Consumer<NcclOptions.Builder>> wrong =
        List.of(
            b -> b.cgaClusterSize(9),
            b -> b.cgaClusterSize(-1),
            b -> b.minCtas(0),
            b -> b.maxCtas(0),
            b -> b.netName(" "),
            b -> b.trafficClass(Integer.MIN_VALUE),
            b -> b.nvlsCtas(0),
            b -> b.channelsPerNetPeer(3),
            b -> b.channelsPerNetPeer(128),
            b -> b.numRmaCtx(-1),
            b -> b.maxP2pPeers(0),
            b -> b.minCtas(4).maxCtas(2).build(),
            b -> b.graphStreamOrdering(false).build());
    for (int i = 0; i < wrong.size(); i++) {
      Consumer<NcclOptions.Builder> one = wrong.get(i);
      assertThrows(
          InvalidArgumentException.class, () -> one.accept(NcclOptions.builder()), "case " + i);
    }
    NcclOptions.builder()
        .graphUsageMode(GraphUsage.SINGLE)
        .graphStreamOrdering(false)
        .minCtas(2)
        .maxCtas(2)
        .build();
  }

  @Test
  void settingsNameTheVariableThatOverrides() {
    NcclOptions options = NcclOptions.builder().minCtas(4).maxCtas(8).netName("Socket").build();
    Map<String, String> environment = Map.of("NCCL_MIN_CTAS", "2", "NCCL_CTA_POLICY", "1");
    List<Setting> settings = options.settings(environment);
    assertEquals(NcclOptions.Option.values().length, settings.size());
    for (Setting expected :
        List.of(
            new Setting("nccl.blocking", "1", "default"),
            new Setting("nccl.minCTAs", "2", "NCCL_MIN_CTAS (overrides the argument 4)"),
            new Setting("nccl.maxCTAs", "8", "argument"),
            new Setting("nccl.netName", "Socket", "argument"),
            new Setting("nccl.CTAPolicy", "1", "NCCL_CTA_POLICY"),
            new Setting("nccl.numRmaCtx", "NCCL's choice", "default"))) {
      assertTrue(settings.contains(expected), expected + " is not in " + settings);
    }
  }

  @Test
  void configurationsListThemWhenTheyAreGiven() {
    CommunicatorConfig plain = CommunicatorConfig.defaults();
    CommunicatorConfig given =
        CommunicatorConfig.builder().with(NcclOptions.builder().maxCtas(3).build()).build();
    assertEquals(10, plain.settings().size());
    assertEquals(10 + NcclOptions.Option.values().length, given.settings().size());
    assertEquals(3, NcclOptions.of(given).value(NcclOptions.Option.MAX_CTAS).orElseThrow());
    assertTrue(NcclOptions.of(plain).value(NcclOptions.Option.MAX_CTAS).isEmpty());
  }

  @Test
  void hostIgnoresThemAndHasNothingOfNccl() {
    CommunicatorConfig config =
        CommunicatorConfig.builder().with(NcclOptions.builder().maxCtas(3).build()).build();
    Device device = Device.get(Backend.HOST, 0);
    try (Communicator communicator =
        Communicator.initRank(device, 1, List.of(UniqueId.create(Backend.HOST)), 0, config)) {
      InvalidUsageException e =
          assertThrows(InvalidUsageException.class, () -> NcclCommunicator.of(communicator));
      assertTrue(e.getMessage().contains("Backend.CUDA"), e.getMessage());
    }
    List<UniqueId> two =
        List.of(UniqueId.create(Backend.HOST), UniqueId.ofBytes(new byte[UniqueId.BYTES]));
    assertThrows(
        InvalidUsageException.class, () -> Communicator.initRank(device, 2, two, 0, config));
    assertThrows(
        InvalidArgumentException.class, () -> Communicator.initRank(device, 1, two, 0, config));
    assertThrows(
        InvalidUsageException.class,
        () -> NcclCommunicator.join(device, 2, two.getFirst(), 1, config));
  }
}

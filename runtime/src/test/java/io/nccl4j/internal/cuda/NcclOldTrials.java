package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.cuda.NcclOptions;
import io.nccl4j.cuda.NcclParameters;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.function.Executable;

/** What NCCL 2.19 does not have is refused, with the version that has it, and does no harm. */
final class NcclOldTrials {
  private static final CommunicatorConfig CONFIG = CommunicatorConfig.defaults();

  private NcclOldTrials() {}

  public static void main(String[] arguments) {
    Trials trials = new Trials(arguments);
    trials.add("newerFunctions", NcclOldTrials::newerFunctions);
    trials.add("newerOptions", NcclOldTrials::newerOptions);
    trials.add("newerOptionsOfAPart", NcclOldTrials::newerOptionsOfAPart);
    trials.add("olderOptions", NcclOldTrials::olderOptions);
    trials.run();
  }

  private static void newerFunctions() throws Exception {
    Device device = Device.get(Backend.CUDA, 0);
    try (Communicators pair = Communicator.initAll(Backend.CUDA, 2);
        Stream stream = device.newStream();
        DeviceBuffer buffer = device.allocate(4096)) {
      NcclCommunicator nccl = NcclCommunicator.of(pair.get(0));
      UniqueId id = UniqueId.create(Backend.CUDA);
      UniqueId other = UniqueId.create(Backend.CUDA);
      Map<Executable, String> calls = new LinkedHashMap<>();
      calls.put(() -> nccl.shrink(new int[] {1}, false, CONFIG), "2.27.3");
      calls.put(nccl::createGrowId, "2.29.2");
      calls.put(() -> nccl.grow(3, null, CONFIG), "2.29.2");
      calls.put(() -> NcclCommunicator.join(device, 3, id, 2, CONFIG), "2.29.2");
      calls.put(nccl::revoke, "2.28.7");
      calls.put(nccl::suspend, "2.29.7");
      calls.put(nccl::resume, "2.29.7");
      calls.put(nccl::properties, "2.29.2");
      calls.put(nccl::memoryStatistics, "2.29.7");
      calls.put(() -> nccl.registerWindow(buffer, true, false), "2.27.3");
      NcclDeviceRequirements requirements = NcclDeviceRequirements.builder(23007).build();
      calls.put(() -> nccl.createDeviceCommunicator(requirements), "2.29.2");
      calls.put(() -> nccl.signal(1, stream), "2.29.2");
      calls.put(() -> nccl.waitSignals(new int[] {0, 1}, stream), "2.29.2");
      calls.put(() -> NcclCommunicator.simulate(() -> {}), "2.22.0");
      calls.put(() -> Communicator.initRank(device, 2, List.of(id, other), 0, CONFIG), "2.23.4");
      calls.put(NcclParameters::keys, "2.30.4");
      calls.put(() -> NcclParameters.get("NCCL_DEBUG"), "2.30.4");
      int number = 0;
      for (Map.Entry<Executable, String> call : calls.entrySet()) {
        InvalidUsageException e =
            assertThrows(InvalidUsageException.class, call.getKey(), "call " + number++);
        assertTrue(e.remedy().contains("NCCL " + call.getValue()), e.getMessage());
        assertTrue(e.problem().contains("2.19.3"), e.getMessage());
      }
      // This one it has.
      try (NcclCommunicator.Registration registration = nccl.register(buffer)) {
        assertTrue(registration.isActive());
      }
      sum(pair);
    }
  }

  private static void newerOptions() throws Exception {
    Map<NcclOptions, String> options = new LinkedHashMap<>();
    options.put(NcclOptions.builder().trafficClass(1).build(), "2.26.0");
    options.put(NcclOptions.builder().nvlsCtas(4).build(), "2.27.0");
    options.put(NcclOptions.builder().channelsPerNetPeer(4).build(), "2.28.0");
    options.put(NcclOptions.builder().numRmaCtx(2).build(), "2.29.0");
    options.put(NcclOptions.builder().maxP2pPeers(2).build(), "2.30.0");
    for (Map.Entry<NcclOptions, String> entry : options.entrySet()) {
      CommunicatorConfig config = CommunicatorConfig.builder().with(entry.getKey()).build();
      InvalidUsageException e =
          assertThrows(
              InvalidUsageException.class,
              () -> Communicator.initAll(List.of(Device.get(Backend.CUDA, 0)), config));
      assertTrue(e.remedy().contains("NCCL " + entry.getValue()), e.getMessage());
    }
  }

  /** One rank wants what NCCL does not know: both hear of it, and what is split stays usable. */
  private static void newerOptionsOfAPart() throws Exception {
    CommunicatorConfig newer =
        CommunicatorConfig.builder().with(NcclOptions.builder().trafficClass(1).build()).build();
    try (Communicators pair = Communicator.initAll(Backend.CUDA, 2)) {
      pair.run(
          communicator -> {
            CommunicatorConfig config = communicator.rank() == 0 ? newer : CONFIG;
            NcclException e =
                assertThrows(NcclException.class, () -> communicator.split(0, 0, config));
            assertTrue(e.getMessage().contains("trafficClass"), e.getMessage());
            assertEquals(Communicator.State.READY, communicator.state());
          });
      sum(pair);
    }
  }

  private static void olderOptions() throws Exception {
    CommunicatorConfig config =
        CommunicatorConfig.builder()
            .name("named")
            .with(NcclOptions.builder().blocking(false).minCtas(2).maxCtas(4).build())
            .build();
    List<Device> devices = List.of(Device.get(Backend.CUDA, 0), Device.get(Backend.CUDA, 1));
    try (Communicators pair = Communicator.initAll(devices, config)) {
      sum(pair);
    }
  }

  private static void sum(Communicators communicators) throws Exception {
    communicators.run(
        communicator -> {
          try (Stream stream = communicator.device().newStream();
              DeviceBuffer data = communicator.device().allocate(4)) {
            data.copyFrom(new int[] {communicator.rank() + 1});
            communicator.allReduce(data, data, 1, DataType.INT32, ReduceOp.SUM, stream);
            stream.synchronize();
            int[] got = new int[1];
            data.copyTo(got);
            assertEquals(3, got[0]);
          }
        });
  }
}

package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.management.CommunicatorMXBean;
import io.nccl4j.management.ProcessMXBean;
import io.nccl4j.memory.MemoryPurpose;
import io.nccl4j.memory.MemoryReport;
import java.lang.management.ManagementFactory;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.stream.Collectors;
import javax.management.JMX;
import javax.management.MBeanServer;
import javax.management.ObjectName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/** What JMX shows. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class ManagementTest {
  private static final MBeanServer SERVER = ManagementFactory.getPlatformMBeanServer();
  private static final CommunicatorConfig SHOWN =
      TestBackend.CONFIG.toBuilder().name("shown").jmx(true).build();

  private static Set<String> names() throws Exception {
    return SERVER.queryNames(new ObjectName("io.nccl4j:*"), null).stream()
        .map(ObjectName::getCanonicalName)
        .collect(Collectors.toSet());
  }

  private static CommunicatorMXBean bean(String key) throws Exception {
    return JMX.newMXBeanProxy(
        SERVER, new ObjectName("io.nccl4j:type=Communicator," + key), CommunicatorMXBean.class);
  }

  @Test
  void eachRankIsShownUntilItIsClosed() throws Exception {
    try (Ranks ranks = new Ranks(2, SHOWN)) {
      assertEquals(
          Set.of(
              "io.nccl4j:name=shown,rank=0,type=Communicator",
              "io.nccl4j:name=shown,rank=1,type=Communicator",
              "io.nccl4j:type=Process"),
          names());
      ranks.assertUsable();
      CommunicatorMXBean bean = bean("name=shown,rank=1");
      assertEquals("shown", bean.getName());
      assertEquals(1, bean.getRank());
      assertEquals(2, bean.getRankCount());
      assertEquals(TestBackend.BACKEND.label(), bean.getBackend());
      assertEquals(ranks.get(1).device().toString(), bean.getDevice());
      assertEquals(Communicator.State.READY, bean.getState());
      assertEquals("", bean.getFailure());
      assertEquals(List.of(), bean.getFailedRanks());
      assertEquals(ranks.get(1).counters(), bean.getCounters());
      assertTrue(bean.getCounters().operation("allReduce").calls() > 0);
      assertEquals(MemoryReport.of(ranks.get(1)).lines(), bean.getMemory());
      boolean isHost = TestBackend.BACKEND == Backend.HOST;
      assertEquals(isHost ? List.of(List.of(0, 1)) : List.of(), bean.getHosts());
      assertEquals("", bean.getNetwork());
      ProcessMXBean process =
          JMX.newMXBeanProxy(SERVER, new ObjectName("io.nccl4j:type=Process"), ProcessMXBean.class);
      assertEquals(2, process.getCommunicatorCount());
      assertTrue(process.getMemory().stream().anyMatch(l -> l.purpose() == MemoryPurpose.USER));
      assertEquals(process.getMemory().size(), process.getMemory().stream().distinct().count());
      assertTrue(!process.getVersion().isEmpty());
      ranks.get(0).close();
      assertEquals(2, names().size());
    }
    assertEquals(Set.of(), names());
  }

  @Test
  void aFailureIsShownWithoutTellingTheProgram() throws Exception {
    CommunicatorConfig failing = SHOWN.toBuilder().operationTimeout(Duration.ofMillis(200)).build();
    try (Ranks ranks = new Ranks(2, failing)) {
      ranks.sum(0, 1);
      assertThrows(NcclException.class, ranks.streams.get(0)::synchronize);
      CommunicatorMXBean bean = bean("name=shown,rank=0");
      assertEquals(Communicator.State.FAILED, bean.getState());
      assertTrue(bean.getFailure().contains("allReduce"), bean::getFailure);
      ranks.get(0).abort();
      assertEquals(
          Set.of("io.nccl4j:name=shown,rank=1,type=Communicator", "io.nccl4j:type=Process"),
          names());
    }
    assertEquals(Set.of(), names());
  }

  @Test
  void communicatorsThatAreNotCreatedAreNotShown() throws Exception {
    CommunicatorConfig refused = SHOWN.toBuilder().memoryBudget(1).build();
    assertThrows(
        NcclException.class, () -> Communicator.initAll(List.of(TestBackend.device(0)), refused));
    assertEquals(Set.of(), names());
  }

  @Test
  void sameAndStrangeNamesAreKeptApart() throws Exception {
    CommunicatorConfig strange = SHOWN.toBuilder().name("a,b=\"c\"*").build();
    try (Ranks one = new Ranks(1, SHOWN);
        Communicator same = one.get(0).split(0, 0);
        Ranks other = new Ranks(1, strange)) {
      assertEquals("shown", same == null ? "" : same.name());
      assertEquals(4, names().size());
      assertEquals("shown", bean("name=shown,rank=0,instance=2").getName());
      assertEquals(
          other.get(0).name(),
          bean("name=" + ObjectName.quote("a,b=\"c\"*") + ",rank=0").getName());
    }
    assertEquals(Set.of(), names());
  }

  @Test
  void nothingIsShownUnlessItIsWanted() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.assertUsable();
      assertEquals(Set.of(), names());
    }
  }
}

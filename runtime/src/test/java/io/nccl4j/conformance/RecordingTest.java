package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ExecutableGraph;
import io.nccl4j.Graph;
import io.nccl4j.Group;
import io.nccl4j.NcclException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.UniqueId;
import java.io.InputStreamReader;
import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import jdk.jfr.Configuration;
import jdk.jfr.EventType;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Recording;
import jdk.jfr.SettingDescriptor;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordingFile;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;
import org.junit.jupiter.api.io.TempDir;

/** What a flight recording shows of communicators. */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class RecordingTest {
  private static final String SETTINGS = "META-INF/nccl4j.jfc";
  private static final CommunicatorConfig NAMED =
      TestBackend.CONFIG.toBuilder().name("observed").build();

  @TempDir Path folder;

  private interface Body {
    void run() throws Exception;
  }

  private static Configuration settings() throws Exception {
    try (Reader reader =
        new InputStreamReader(
            Objects.requireNonNull(
                Communicator.class.getClassLoader().getResourceAsStream(SETTINGS)),
            StandardCharsets.UTF_8)) {
      return Configuration.create(reader);
    }
  }

  /** The events of nccl4j that a recording with its settings has, all operations included. */
  private List<RecordedEvent> recorded(Map<String, String> more, Body body) throws Exception {
    Path file = folder.resolve("recording.jfr");
    try (Recording recording = new Recording(settings())) {
      recording.enable("io.nccl4j.Collective").withThreshold(Duration.ZERO);
      recording.enable("io.nccl4j.Message").withThreshold(Duration.ZERO);
      Map<String, String> all = recording.getSettings();
      all.putAll(more);
      recording.setSettings(all);
      recording.start();
      body.run();
      recording.stop();
      recording.dump(file);
    }
    List<RecordedEvent> events = RecordingFile.readAllEvents(file);
    Files.delete(file);
    return events.stream()
        .filter(event -> event.getEventType().getName().startsWith("io.nccl4j."))
        .sorted(Comparator.comparing(RecordedEvent::getStartTime))
        .toList();
  }

  private static List<RecordedEvent> of(List<RecordedEvent> events, String name) {
    return events.stream()
        .filter(event -> event.getEventType().getName().equals("io.nccl4j." + name))
        .toList();
  }

  private static void assertTimes(RecordedEvent event) {
    Duration wait = event.getDuration("waitTime");
    Duration run = event.getDuration("runTime");
    if (TestBackend.BACKEND == Backend.CUDA) {
      assertEquals(Long.MIN_VALUE, event.getLong("waitTime"), event::toString);
      assertEquals(Long.MIN_VALUE, event.getLong("runTime"), event::toString);
      return;
    }
    assertFalse(wait.isNegative() || run.isNegative(), event::toString);
    // The clock of the recorder has ticks of its own.
    Duration difference = wait.plus(run).minus(event.getDuration()).abs();
    assertTrue(difference.compareTo(Duration.ofMillis(50)) < 0, event::toString);
  }

  @Test
  void collectivesShowWhatTheyAre() throws Exception {
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              try (Communicators ranks = TestBackend.communicators(2, NAMED)) {
                ranks.run(
                    rank -> {
                      try (Stream stream = rank.device().newStream();
                          DeviceBuffer buffer = rank.device().allocate(1 << 20)) {
                        rank.allReduce(buffer, buffer, 3, DataType.FLOAT64, ReduceOp.MAX, stream);
                        rank.broadcast(buffer, buffer, 1 << 18, DataType.INT32, 1, stream);
                        rank.barrier(stream);
                        stream.synchronize();
                      }
                    });
              }
            });
    for (int rank = 0; rank < 2; rank++) {
      int own = rank;
      // What the rig does to connect the ranks is recorded, too.
      List<RecordedEvent> all =
          of(events, "Collective").stream().filter(event -> event.getInt("rank") == own).toList();
      List<RecordedEvent> last = all.subList(all.size() - 3, all.size());
      RecordedEvent sum = last.get(0);
      assertEquals("allReduce", sum.getString("operation"));
      assertEquals("observed", sum.getString("communicator"));
      assertEquals(2, sum.getInt("ranks"));
      assertEquals(3, sum.getLong("count"));
      assertEquals("double", sum.getString("type"));
      assertEquals("max", sum.getString("reduction"));
      assertEquals(24, sum.getLong("bytes"));
      assertEquals(-1, sum.getInt("root"));
      assertEquals(all.size() - 2, sum.getLong("sequence"));
      assertTrue(sum.getLong("stream") > 0);
      assertTrue(sum.getBoolean("complete"));
      boolean isHost = TestBackend.BACKEND == Backend.HOST;
      assertEquals(isHost ? "low latency" : "", sum.getString("protocol"));
      RecordedEvent broadcast = last.get(1);
      assertEquals("broadcast", broadcast.getString("operation"));
      assertEquals("", broadcast.getString("reduction"));
      assertEquals(1, broadcast.getInt("root"));
      assertEquals(1 << 20, broadcast.getLong("bytes"));
      assertEquals(isHost ? "direct" : "", broadcast.getString("protocol"));
      assertEquals("barrier", last.get(2).getString("operation"));
      assertEquals(0, last.get(2).getLong("bytes"));
      last.forEach(RecordingTest::assertTimes);
    }
  }

  /** A rank that comes late makes the other one wait; that is not time in which data moves. */
  @Test
  void waitingForRanksIsToldFromRunning() throws Exception {
    TestBackend.requireHost("NCCL does not tell");
    Duration late = Duration.ofMillis(200);
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              try (Ranks ranks = new Ranks(2, NAMED)) {
                ranks.sum(0, 1);
                assertFalse(waits(ranks.streams.get(0), late));
                ranks.sum(1, 1);
                ranks.synchronize();
              }
            });
    RecordedEvent first =
        of(events, "Collective").stream()
            .filter(event -> event.getInt("rank") == 0)
            .findFirst()
            .orElseThrow();
    assertTrue(first.getDuration("waitTime").compareTo(late) >= 0, first::toString);
    assertTrue(first.getDuration("runTime").compareTo(late) < 0, first::toString);
  }

  private static boolean waits(Stream stream, Duration time) {
    try {
      stream.synchronize(time);
      return true;
    } catch (DeadlineException e) {
      return false;
    }
  }

  @Test
  void messagesAndGraphsShowWhatTheyAre() throws Exception {
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              try (Ranks ranks = new Ranks(2, NAMED)) {
                Group.run(
                    () -> {
                      ranks
                          .get(0)
                          .send(ranks.in.get(0), 5, DataType.INT32, 1, ranks.streams.get(0));
                      ranks
                          .get(1)
                          .recv(ranks.out.get(1), 5, DataType.INT32, 0, ranks.streams.get(1));
                    });
                ranks.synchronize();
                Stream stream = ranks.streams.get(0);
                stream.beginCapture();
                Group.run(
                    () -> {
                      ranks.get(0).send(ranks.in.get(0), 5, DataType.INT32, 0, stream);
                      ranks.get(0).recv(ranks.out.get(0), 5, DataType.INT32, 0, stream);
                    });
                try (Graph graph = stream.endCapture();
                    ExecutableGraph executable = graph.instantiate()) {
                  executable.launch(stream);
                  stream.synchronize();
                }
              }
            });
    List<RecordedEvent> messages = of(events, "Message");
    RecordedEvent send = messages.get(messages.size() - 2);
    RecordedEvent recv = messages.get(messages.size() - 1);
    if (send.getString("operation").equals("recv")) {
      RecordedEvent other = send;
      send = recv;
      recv = other;
    }
    assertEquals("send", send.getString("operation"));
    assertEquals(1, send.getInt("peer"));
    assertEquals(20, send.getLong("bytes"));
    assertEquals("recv", recv.getString("operation"));
    assertEquals(0, recv.getInt("peer"));
    assertTrue(recv.getBoolean("complete"));
    RecordedEvent launch = of(events, "GraphLaunch").getFirst();
    assertEquals(2, launch.getInt("operations"));
    assertTrue(launch.getLong("stream") > 0);
  }

  @Test
  void joinsFailuresAndAllocationsShowWhatTheyAre() throws Exception {
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              try (Ranks ranks = new Ranks(2, NAMED)) {
                ranks.sum(0, 1);
                ranks.get(1).abort(new IllegalStateException("the disk is full"));
                assertTrue(TestBackend.eventually(() -> ranks.get(0).failure().isPresent()));
              }
            });
    RecordedEvent join = of(events, "Join").getFirst();
    assertEquals("initAll", join.getString("call"));
    assertEquals("observed", join.getString("communicator"));
    assertEquals(TestBackend.BACKEND.label(), join.getString("backend"));
    assertEquals("0, 1", join.getString("ownRanks"));
    assertEquals(2, join.getInt("ranks"));
    assertEquals("", join.getString("failure"));
    assertTrue(join.getDuration().isPositive());
    List<RecordedEvent> failures = of(events, "Failure");
    assertEquals(2, failures.size());
    for (RecordedEvent failure : failures) {
      assertEquals("observed", failure.getString("communicator"));
      assertEquals(AbortedException.class.getName(), failure.getString("type"));
      assertTrue(failure.getString("message").contains("the disk is full"), failure::toString);
      assertEquals("1", failure.getString("failedRanks"));
      assertNotNull(failure.getStackTrace());
    }
    assertEquals(Set.of(0, 1), values(failures, "rank"));
    assertTrue(
        of(events, "Collective").stream()
            .anyMatch(event -> !event.getBoolean("complete") && event.getInt("rank") == 0));
    List<RecordedEvent> buffers =
        of(events, "Allocation").stream()
            .filter(event -> event.getString("purpose").equals("user"))
            .toList();
    assertEquals(4, buffers.stream().filter(e -> e.getLong("bytes") == Ranks.BYTES).count());
    assertTrue(of(events, "Allocation").stream().allMatch(event -> event.getLong("bytes") > 0));
    assertTrue(
        of(events, "Allocation").stream()
            .anyMatch(event -> event.getString("owner").contains("observed")));
  }

  private static Set<Object> values(List<RecordedEvent> events, String field) {
    return events.stream().<Object>map(event -> event.getValue(field)).collect(Collectors.toSet());
  }

  /** A rank that comes late makes the other one wait, which is told from what follows. */
  @Test
  void ranksThatMeetShowHowLongThatTook() throws Exception {
    TestBackend.requireHost("NCCL meets by itself");
    UniqueId id = UniqueId.create(Backend.HOST);
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              CompletableFuture<Communicator> first =
                  CompletableFuture.supplyAsync(
                      () -> Communicator.initRank(TestBackend.device(0), 2, id, 0, NAMED));
              assertThrows(TimeoutException.class, () -> first.get(200, TimeUnit.MILLISECONDS));
              Communicator.initRank(TestBackend.device(1), 2, id, 1, NAMED).close();
              first.get().close();
            });
    List<RecordedEvent> joins = of(events, "Join");
    assertEquals(2, joins.size());
    for (RecordedEvent join : joins) {
      Duration meeting = join.getDuration("meetingTime");
      assertEquals("initRank", join.getString("call"));
      assertTrue(meeting.isPositive(), join::toString);
      assertTrue(meeting.compareTo(join.getDuration().plusMillis(50)) < 0, join::toString);
    }
    assertTrue(joins.getFirst().getDuration("meetingTime").toMillis() >= 150);
  }

  @Test
  void refusedJoinsAreShown() throws Exception {
    CommunicatorConfig small = TestBackend.CONFIG.toBuilder().memoryBudget(1).build();
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () ->
                assertThrows(
                    NcclException.class,
                    () -> Communicator.initAll(List.of(TestBackend.device(0)), small)));
    RecordedEvent join = of(events, "Join").getFirst();
    assertTrue(join.getString("failure").contains("budget"), join::toString);
  }

  @Test
  void whoIsWaitedForIsShownWhileTheWaitLasts() throws Exception {
    List<RecordedEvent> events =
        recorded(
            Map.of("io.nccl4j.Stall#threshold", "100 ms"),
            () -> {
              try (Ranks ranks = new Ranks(2, NAMED)) {
                ranks.sum(0, 1);
                assertFalse(waits(ranks.streams.get(0), Duration.ofMillis(600)));
                ranks.sum(1, 1);
                ranks.synchronize();
              }
            });
    List<RecordedEvent> stalls = of(events, "Stall");
    // After 100 ms, 200 ms, 400 ms, or later on a busy machine.
    assertTrue(!stalls.isEmpty() && stalls.size() <= 4, stalls::toString);
    for (RecordedEvent stall : stalls) {
      assertEquals("allReduce", stall.getString("operation"));
      assertEquals("observed", stall.getString("communicator"));
      assertEquals(0, stall.getInt("rank"));
      assertTrue(stall.getDuration("waited").toMillis() >= 90, stall::toString);
      assertTrue(stall.getDuration().toMillis() >= 90, stall::toString);
      assertTrue(stall.getString("waitingFor").contains("rank 1"), stall::toString);
    }
  }

  @Test
  void connectionsToOtherHostsAreShown() throws Exception {
    TestBackend.requireHost("NCCL connects by itself");
    List<RecordedEvent> events =
        recorded(
            Map.of(),
            () -> {
              try (Communicators ranks = TestBackend.overHosts(new int[] {0, 1}, NAMED, "netty")) {
                ranks.run(
                    rank -> {
                      try (Stream stream = rank.device().newStream()) {
                        rank.barrier(stream);
                        stream.synchronize();
                      }
                    });
              }
            });
    List<RecordedEvent> made =
        of(events, "Connect").stream().filter(e -> e.getString("failure").isEmpty()).toList();
    // Each connection has two ends.
    assertEquals(Set.of(true, false), values(made, "dialed"));
    assertEquals(Set.of("TCP"), values(made, "network"));
    made.forEach(event -> assertTrue(event.getString("address").contains("127.0.0.1")));
  }

  @Test
  void aRecordingMayBeginAndEndWhileRanksAreAtWork() throws Exception {
    try (Ranks ranks = new Ranks(2, NAMED)) {
      ranks.assertUsable();
      List<RecordedEvent> events = recorded(Map.of(), ranks::assertUsable);
      ranks.assertUsable();
      Set<Object> sequences = values(of(events, "Collective"), "sequence");
      assertFalse(sequences.isEmpty());
      assertFalse(sequences.contains(1L), sequences::toString);
    }
  }

  @Test
  void nothingIsRecordedWithoutItsSettings() throws Exception {
    Path file = folder.resolve("recording.jfr");
    try (Recording recording = new Recording(Configuration.getConfiguration("profile"))) {
      recording.start();
      try (Ranks ranks = new Ranks(2, NAMED)) {
        ranks.assertUsable();
      }
      recording.stop();
      recording.dump(file);
    }
    Set<String> found = new HashSet<>();
    for (RecordedEvent event : RecordingFile.readAllEvents(file)) {
      found.add(event.getEventType().getName());
    }
    found.removeIf(name -> !name.startsWith("io.nccl4j."));
    // What is rare is there by default.
    assertEquals(Set.of("io.nccl4j.Join"), found);
  }

  @Test
  void theSettingsFileSwitchesOnAllEventsAndNothingElse() throws Exception {
    try (Ranks ranks = new Ranks(2)) {
      ranks.assertUsable();
      ranks.get(0).abort();
    }
    // One machine has no connections, and an event is registered with the first one.
    Class.forName("io.nccl4j.internal.observe.jfr.ConnectedEvent");
    Map<String, String> settings = settings().getSettings();
    List<EventType> types =
        FlightRecorder.getFlightRecorder().getEventTypes().stream()
            .filter(type -> type.getName().startsWith("io.nccl4j."))
            .toList();
    Set<String> known = new HashSet<>();
    for (EventType type : types) {
      assertEquals("true", settings.get(type.getName() + "#enabled"), type.getName());
      assertFalse(type.getLabel().isEmpty() || type.getDescription().isEmpty(), type.getName());
      assertEquals(List.of("nccl4j"), type.getCategoryNames(), type.getName());
      for (SettingDescriptor setting : type.getSettingDescriptors()) {
        known.add(type.getName() + "#" + setting.getName());
      }
    }
    assertEquals(
        Set.of(),
        settings.keySet().stream().filter(s -> !known.contains(s)).collect(Collectors.toSet()));
  }
}

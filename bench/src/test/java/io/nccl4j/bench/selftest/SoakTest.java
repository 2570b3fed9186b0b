package io.nccl4j.bench.selftest;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.AbortedException;
import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.MismatchException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.Stream;
import io.nccl4j.bench.selftest.SoakUsage.Quantity;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** The soak with "processes" that are threads of this one, and that it can fail. */
@Timeout(240)
class SoakTest {
  private static final int SEED = 20260301;
  private static final Duration LONG = Duration.ofMinutes(3);

  private static final Soak.Listener SILENT =
      new Soak.Listener() {
        @Override
        public void progress(Soak.Result soFar, Duration of) {}

        @Override
        public void problem(String text) {
          System.out.println(text);
        }
      };

  /** Parts of this process, each with a thread that does what it is told. */
  private static final class Parts implements Soak.Processes, AutoCloseable {
    private static final String END = "";

    private final BlockingQueue<Soak.Event> events = new LinkedBlockingQueue<>();
    private final List<BlockingQueue<String>> inputs = new ArrayList<>();

    Parts(Soak.Settings settings, UnaryOperator<Communicator> hook) {
      for (int i = 0; i < settings.processes(); i++) {
        int number = i;
        BlockingQueue<String> input = new LinkedBlockingQueue<>();
        inputs.add(input);
        SoakProcess process =
            new SoakProcess(settings, line -> events.add(new Soak.Event(number, line, 0)), hook);
        Thread.ofPlatform().daemon().name("part-" + i).start(() -> handle(process, number, input));
      }
    }

    private void handle(SoakProcess process, int number, BlockingQueue<String> input) {
      try {
        for (String line = input.take(); !line.equals(END); line = input.take()) {
          process.handle(line);
        }
        process.handle("usage");
      } catch (InterruptedException | RuntimeException e) {
        System.out.println("part " + number + ": " + e);
        events.add(new Soak.Event(number, null, 1));
      }
    }

    @Override
    public void say(int process, String line) {
      inputs.get(process).add(line);
    }

    @Override
    public Soak.Event next(Duration patience) throws InterruptedException {
      return events.poll(patience.toNanos(), TimeUnit.NANOSECONDS);
    }

    @Override
    public void kill(int process) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void stop(int process, Duration lasts) {
      throw new UnsupportedOperationException();
    }

    @Override
    public void dump(int process) {}

    @Override
    public void replace(int process) {}

    @Override
    public void close() {
      inputs.forEach(input -> input.add(END));
    }
  }

  private static Soak.Settings settings(int ranks, int processes) {
    return new Soak.Settings(SEED, ranks, processes, false, false);
  }

  private static Soak.Result run(
      Soak.Settings settings, int episodes, UnaryOperator<Communicator> hook)
      throws InterruptedException {
    try (Parts parts = new Parts(settings, hook)) {
      return new Soak(settings, parts, Duration.ZERO, SILENT).run(0, episodes, LONG);
    }
  }

  @Test
  void nothingIsWrong() throws Exception {
    assertNothingIsWrong(4, 2);
  }

  @Tag("long")
  @ParameterizedTest
  @CsvSource({"2, 1", "2, 2"})
  void nothingIsWrongAmongFewerRanks(int ranks, int processes) throws Exception {
    assertNothingIsWrong(ranks, processes);
  }

  private static void assertNothingIsWrong(int ranks, int processes) throws Exception {
    Soak.Result result = run(settings(ranks, processes), 6, UnaryOperator.identity());
    assertEquals(List.of(), result.texts());
    assertEquals(6, result.episodes());
    assertEquals(0, result.wrong());
    assertTrue(result.operations() > 0 && result.bytes() > 0, result::toString);
    assertTrue(result.passed(), result::toString);
  }

  /** A communicator whose results of one operation are changed by one byte. */
  private static Communicator changing(Communicator original) {
    return (Communicator)
        Proxy.newProxyInstance(
            Communicator.class.getClassLoader(),
            new Class<?>[] {Communicator.class},
            (proxy, method, arguments) -> {
              try {
                Object result = method.invoke(original, arguments);
                if (method.getName().equals("allToAll") && original.rank() == 0) {
                  ((Stream) arguments[4]).fill(((DeviceBuffer) arguments[1]).slice(0, 1), (byte) 3);
                }
                return result;
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  @Test
  void aWrongElementIsFound() throws Exception {
    Soak.Result result = run(settings(2, 1), 8, SoakTest::changing);
    assertTrue(result.wrong() > 0, result::toString);
    assertFalse(result.passed());
    assertTrue(
        result.texts().stream().anyMatch(text -> text.contains("result of allToAll of")),
        result::toString);
  }

  @Test
  void whatGrowsIsFound() throws Exception {
    List<DeviceBuffer> leaked = new ArrayList<>();
    try {
      Soak.Result result =
          run(
              settings(2, 1),
              SoakGrowth.FEWEST,
              communicator -> {
                synchronized (leaked) {
                  leaked.add(communicator.device().allocate(1));
                }
                return communicator;
              });
      assertEquals(0, result.problems(), result::toString);
      assertFalse(result.passed());
      assertTrue(
          result.leaks().stream().anyMatch(leak -> leak.startsWith("process 0: booked grew from")),
          result::toString);
    } finally {
      leaked.forEach(DeviceBuffer::close);
    }
  }

  @Test
  void aByteThatNobodyMayChangeIsMissed() {
    SoakCanaries canaries = new SoakCanaries();
    canaries.renew(new Random(SEED), 2);
    assertEquals(List.of(), canaries.check());
    DeviceBuffer one = canaries.buffers().getLast();
    byte[] bytes = one.toBytes();
    bytes[bytes.length / 2] ^= 1;
    one.copyFrom(bytes);
    assertEquals(1, canaries.check().size());
    assertEquals(List.of(), canaries.check());
    DeviceBuffer used = SelfTest.device(Backend.HOST, 1).allocate(100);
    canaries.adopt(used, new Random(SEED));
    used.slice(99).copyFrom(new byte[] {(byte) ~used.toBytes()[99]});
    assertEquals(1, canaries.check().size());
    canaries.clear();
  }

  private static SoakUsage usage(Quantity quantity, long amount) {
    Map<Quantity, Long> values = new EnumMap<>(Quantity.class);
    Arrays.stream(Quantity.values()).forEach(one -> values.put(one, 1000L));
    values.put(quantity, amount);
    return new SoakUsage(100, values, "1 to pipe:[#], 2 thread rank-#");
  }

  @Test
  void onlyLastingGrowthIsALeak() {
    for (Quantity quantity : Quantity.values()) {
      List<SoakUsage> samples = new ArrayList<>();
      for (int i = 0; i < 40; i++) {
        // A warm-up, and now and then something that goes again.
        samples.add(usage(quantity, i < 20 ? i : i % 7 == 0 ? Long.MAX_VALUE : 20));
      }
      SoakGrowth flat = SoakGrowth.of(samples, Duration.ZERO).get(quantity.ordinal());
      assertFalse(flat.isLeak(), flat::toString);
      samples.clear();
      for (int i = 0; i < 40; i++) {
        samples.add(usage(quantity, i * (quantity.limit() / 8 + 1)));
      }
      SoakGrowth leak = SoakGrowth.of(samples, Duration.ZERO).get(quantity.ordinal());
      assertTrue(leak.isLeak(), leak::toString);
      assertEquals(quantity, leak.quantity());
      assertEquals(samples.getLast(), SoakUsage.parse(samples.getLast().format()));
    }
    List<SoakUsage> young = java.util.Collections.nCopies(40, usage(Quantity.HEAP, 1));
    assertEquals(List.of(), SoakGrowth.of(young, Duration.ofSeconds(101)));
    assertEquals(List.of(), SoakGrowth.of(List.of(usage(Quantity.HEAP, 1)), Duration.ZERO));
  }

  @Test
  void episodesFollowFromSeedAndNumber() {
    Soak.Settings settings = new Soak.Settings(SEED, 4, 4, true, true);
    Set<SoakFault.Kind> kinds = EnumSet.noneOf(SoakFault.Kind.class);
    for (int number = 0; number < 300; number++) {
      SoakEpisode episode = SoakEpisode.of(settings, number);
      assertEquals(episode, SoakEpisode.of(settings, number));
      assertNotEquals(episode.steps(), SoakEpisode.of(settings, number + 1).steps());
      kinds.add(episode.fault().kind());
    }
    assertEquals(EnumSet.allOf(SoakFault.Kind.class), kinds);
    Soak.Settings spared = new Soak.Settings(SEED, 4, 4, false, false);
    for (int number = 0; number < 300; number++) {
      assertFalse(SoakEpisode.of(spared, number).fault().kind().isFromOutside());
    }
  }

  private static SoakFault fault(SoakFault.Kind kind) {
    return new SoakFault(kind, Set.of(2), 0, 0.5, Duration.ofMillis(1));
  }

  @Test
  void aFailureMustFitTheFault() {
    PeerFailedException peer = new PeerFailedException(2, "died", "");
    AbortedException aborted = new AbortedException("aborted", "");
    DeadlineException deadline = new DeadlineException("late", "");
    MismatchException mismatch = new MismatchException("different", "");
    for (SoakFault.Kind kind : SoakFault.Kind.values()) {
      assertFalse(fault(kind).allows(mismatch, Set.of(), true), kind::label);
    }
    for (SoakFault.Kind kind :
        List.of(SoakFault.Kind.NONE, SoakFault.Kind.SLOW, SoakFault.Kind.STOP_SHORT)) {
      assertFalse(fault(kind).allows(peer, Set.of(2), true), kind::label);
      assertFalse(fault(kind).allows(deadline, Set.of(), true), kind::label);
    }
    for (SoakFault.Kind kind : List.of(SoakFault.Kind.KILL, SoakFault.Kind.LEAVE)) {
      assertTrue(fault(kind).allows(peer, Set.of(2), true), kind::label);
      // Who survived is not to blame.
      assertFalse(fault(kind).allows(peer, Set.of(1), true), kind::label);
      assertFalse(fault(kind).allows(peer, Set.of(), true), kind::label);
      assertFalse(fault(kind).allows(deadline, Set.of(), true), kind::label);
    }
    NcclException dropped = new AbortedException("dropped", "").causedBy(peer);
    for (SoakFault.Kind kind : List.of(SoakFault.Kind.KILL, SoakFault.Kind.LEAVE)) {
      assertTrue(fault(kind).allows(dropped, Set.of(1), false), kind::label);
      assertFalse(fault(kind).allows(dropped, Set.of(1), true), kind::label);
      assertFalse(fault(kind).allows(aborted, Set.of(2), false), kind::label);
    }
    assertTrue(fault(SoakFault.Kind.ABORT).allows(aborted, Set.of(2), true));
    assertFalse(fault(SoakFault.Kind.ABORT).allows(aborted, Set.of(1), true));
    assertFalse(fault(SoakFault.Kind.ABORT).allows(aborted, Set.of(), true));
    assertFalse(fault(SoakFault.Kind.ABORT).allows(peer, Set.of(2), true));
    assertTrue(fault(SoakFault.Kind.STOP_LONG).allows(deadline, Set.of(), true));
  }

  /** A process that answers once, and then is lost or hangs. */
  private static class Broken implements Soak.Processes {
    private final List<String> done = new ArrayList<>();
    private final BlockingQueue<Soak.Event> events = new LinkedBlockingQueue<>();

    @Override
    public void say(int process, String line) {
      done.add(line.split(" ")[0]);
    }

    @Override
    public Soak.Event next(Duration patience) {
      return events.poll();
    }

    @Override
    public void kill(int process) {
      done.add("kill");
    }

    @Override
    public void stop(int process, Duration lasts) {
      done.add("stop");
    }

    @Override
    public void dump(int process) {
      done.add("dump");
    }

    @Override
    public void replace(int process) {
      done.add("replace");
      events.add(usage());
    }

    List<String> done() {
      return done;
    }

    BlockingQueue<Soak.Event> events() {
      return events;
    }

    static Soak.Event usage() {
      return new Soak.Event(0, "usage " + SoakTest.usage(Quantity.HEAP, 1).format(), 0);
    }
  }

  private static Soak.Result run(Broken processes) throws InterruptedException {
    processes.events.add(Broken.usage());
    return new Soak(settings(2, 1), processes, Duration.ZERO, SILENT).run(0, 1, LONG);
  }

  @Test
  void aLostProcessIsAProblem() throws InterruptedException {
    Broken processes =
        new Broken() {
          @Override
          public void say(int process, String line) {
            super.say(process, line);
            if (line.startsWith("episode")) {
              events().add(new Soak.Event(0, null, 134));
            }
          }
        };
    Soak.Result result = run(processes);
    assertEquals(List.of("usage", "episode", "replace", "usage"), processes.done());
    assertEquals(List.of("episode 0, process 0: ended with exit code 134"), result.texts());
    assertFalse(result.passed());
  }

  @Test
  void aHangIsAProblem() throws InterruptedException {
    Broken processes = new Broken();
    Soak.Result result = run(processes);
    assertEquals(List.of("usage", "episode", "dump", "kill", "replace", "usage"), processes.done());
    assertEquals(List.of("episode 0, process 0: hangs: no answer in 240 s"), result.texts());
    assertFalse(result.passed());
  }

  @Test
  void aReportSaysAll() throws Exception {
    Soak.Result good = run(settings(2, 1), 1, UnaryOperator.identity());
    Soak.Result bad =
        new Soak.Result(
            good.settings(),
            1,
            1,
            1,
            1,
            Map.of("kill", 3L),
            0,
            1,
            List.of("episode 7, process 1: hangs"),
            12,
            Map.of("process 0", SoakGrowth.of(List.of(), Duration.ZERO)),
            List.of("process 0: threads grew"));
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    PrintStream print = new PrintStream(out, true, StandardCharsets.UTF_8);
    new SoakReport("1", List.of(good)).writeText(print);
    assertTrue(
        out.toString(StandardCharsets.UTF_8).endsWith("wrong, and nothing grows\n"), out::toString);
    SoakReport report = new SoakReport("1", List.of(good, bad));
    assertFalse(report.passed());
    out.reset();
    report.writeText(print);
    String text = out.toString(StandardCharsets.UTF_8);
    assertTrue(text.contains("episodes with: kill 3,\n"), text);
    assertTrue(text.contains("# episode 7, process 1: hangs\n"), text);
    assertTrue(text.endsWith("# FAILED\n"), text);
    out.reset();
    report.writeJson(print);
    assertTrue(out.toString(StandardCharsets.UTF_8).contains("\"kill\" : 3"), out::toString);
  }
}

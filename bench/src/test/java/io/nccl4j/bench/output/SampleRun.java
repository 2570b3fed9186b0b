package io.nccl4j.bench.output;

import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.bench.options.Blocking;
import io.nccl4j.bench.options.Options;
import io.nccl4j.bench.program.Program;
import io.nccl4j.bench.program.Programs;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.Measurement;
import io.nccl4j.bench.result.MemoryUse;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;
import java.time.LocalDateTime;
import java.util.List;
import java.util.OptionalDouble;
import java.util.OptionalLong;

/** A made-up run for the writers' tests. */
final class SampleRun {
  static final LocalDateTime START = LocalDateTime.of(2026, 3, 4, 5, 6, 7);

  private SampleRun() {}

  static RunInfo info(Program program, boolean timestamps) {
    return info(program, timestamps, new CommunicatorHosts(List.of(List.of(0, 1)), "", "", ""));
  }

  private static RunInfo info(Program program, boolean timestamps, CommunicatorHosts hosts) {
    Options options =
        Options.builder()
            .threads(2)
            .minBytes(8)
            .maxBytes(1 << 30)
            .stepFactor(2)
            .timestamps(timestamps)
            .blocking(timestamps ? Blocking.WAIT : Blocking.NONE)
            .build();
    return new RunInfo(
        program,
        options,
        Backend.HOST,
        "1.2.3",
        List.of(
            new RankInfo(0, 0, 4242, "node", 0, "host", "Some Processor"),
            new RankInfo(1, 0, 4242, "node", 1, "host", "Some Processor")),
        hosts,
        List.of(
            new BackendInfo(
                Backend.HOST,
                "",
                "",
                List.of(),
                List.of(),
                List.of(),
                List.of(new BackendInfo.Fact("processor", "Some Processor")))),
        START);
  }

  static RunResult allReduce(boolean timestamps) {
    return new RunResult(
        info(Programs.allReduce(), timestamps),
        List.of(
            line(8, 2, measured(3.456, 0, 0, 0), measured(2.5, 0.0032, 0.0032, 0)),
            line(
                1 << 30,
                1 << 28,
                measured(123456.78, 8.697, 8.697, 0),
                measured(12345678, 0.087, 0.087, 1234567)),
            line(
                1 << 30,
                1 << 28,
                new Measurement(
                    100, 10737.4, 10737.4, OptionalLong.empty(), List.of(100.0), 10, null),
                measured(101, 1.5, 1.5, 3))),
        812.345,
        1.25,
        new LineLatency(OptionalDouble.of(51.5), OptionalDouble.of(238.25)),
        new MemoryUse(16, OptionalLong.of(123), OptionalLong.empty(), null, "no NCCL"),
        null,
        null,
        START.plusSeconds(9));
  }

  static RunResult sendRecv() {
    return sendRecv(info(Programs.sendRecv(), false));
  }

  /** The same between two hosts. */
  static RunResult sendRecvBetweenHosts() {
    CommunicatorHosts hosts =
        new CommunicatorHosts(List.of(List.of(0), List.of(1)), "netty (TCP)", "eth0", "10.0.0.7");
    return sendRecv(info(Programs.sendRecv(), false, hosts));
  }

  private static RunResult sendRecv(RunInfo info) {
    return new RunResult(
        info,
        List.of(
            new SizeResult(
                8,
                2,
                "float",
                "none",
                -1,
                measured(1.25, 0.0064, 0.0064, 0),
                null,
                20,
                LineLatency.UNKNOWN,
                START)),
        5.04,
        0.75,
        LineLatency.UNKNOWN,
        null,
        null,
        null,
        START.plusSeconds(1));
  }

  private static SizeResult line(long size, long count, Measurement out, Measurement in) {
    return new SizeResult(
        size,
        count,
        "float",
        "sum",
        -1,
        out,
        in,
        20,
        new LineLatency(OptionalDouble.of(25.5), OptionalDouble.of(26)),
        START.plusSeconds(1));
  }

  private static Measurement measured(double micros, double algBw, double busBw, long wrong) {
    return new Measurement(micros, algBw, busBw, OptionalLong.of(wrong), List.of(micros), 10, null);
  }

  static void tell(RunListener listener, RunResult result) {
    listener.started(result.info());
    result.sizes().forEach(listener::measured);
    listener.finished(result);
  }
}

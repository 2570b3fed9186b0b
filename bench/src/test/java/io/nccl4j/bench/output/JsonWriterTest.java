package io.nccl4j.bench.output;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.nccl4j.Backend;
import io.nccl4j.BackendInfo;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.result.LineLatency;
import io.nccl4j.bench.result.MemoryUse;
import io.nccl4j.bench.result.PredictedMemory;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.cuda.NcclMemoryStatistics;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.stream.StreamSupport;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class JsonWriterTest {
  private static final Map<String, String> ENVIRONMENT =
      Map.of(
          "NCCL_DEBUG", "INFO",
          "CUDA_VISIBLE_DEVICES", "0,1",
          "NCCL4J_NRANKS", "2",
          "NCCL4J_UNIQUE_ID", "secret",
          "AWS_SECRET_ACCESS_KEY", "secret",
          "MY_NCCL_TOKEN", "secret",
          "HOME", "/root");

  @TempDir Path folder;

  private JsonWriter create() {
    return JsonWriter.create(
        folder.resolve("run.json"), List.of("allreduce", "-b", "8"), ENVIRONMENT, SampleRun.START);
  }

  private JsonNode read(JsonWriter writer) throws IOException {
    return new ObjectMapper().readTree(writer.file().toFile());
  }

  private static List<String> names(JsonNode node) {
    return StreamSupport.stream(((Iterable<String>) node::fieldNames).spliterator(), false)
        .toList();
  }

  @Test
  void hasTheNamesOfSchemaThree() throws IOException {
    JsonWriter writer = create();
    SampleRun.tell(writer, SampleRun.allReduce(false));
    JsonNode root = read(writer);
    assertEquals(
        List.of(
            "version",
            "start_time",
            "args",
            "env",
            "nccl_version",
            "nccl4j_version",
            "backend",
            "hosts",
            "network",
            "config",
            "system",
            "results",
            "out_of_bounds",
            "average_bus_bandwidth",
            "cold_time_us",
            "warm_time_us",
            "line_latency_ns",
            "memory",
            "errors",
            "end_time"),
        names(root));
    assertEquals(
        List.of(
            "nthreads",
            "ngpus",
            "minimum_bytes",
            "maximum_bytes",
            "step_factor",
            "warmup_iters",
            "iterations",
            "aggregated_iterations",
            "validation",
            "graph",
            "blocking_collectives",
            "per_iter_timing",
            "per_iter_skip",
            "parallel_init",
            "devices"),
        names(root.get("config")));
    assertEquals(
        List.of("rank", "group", "pid", "hostname", "host", "device", "device_hex", "device_info"),
        names(root.at("/config/devices/1")));
    assertEquals(
        List.of(
            "size",
            "count",
            "type",
            "redop",
            "root",
            "out_of_place",
            "in_place",
            "line_latency_ns",
            "actual_iterations",
            "experiment_name"),
        names(root.at("/results/0")));
    assertEquals(
        List.of("time", "alg_bw", "bus_bw", "nwrong", "rounds_us"),
        names(root.at("/results/0/in_place")));
    assertEquals(
        List.of("backend", "libraries", "devices", "facts"), names(root.at("/system/backends/0")));
  }

  @Test
  void hasTypedValues() throws IOException {
    JsonWriter writer = create();
    SampleRun.tell(writer, SampleRun.allReduce(false));
    JsonNode root = read(writer);
    assertEquals(3, root.get("version").intValue());
    assertEquals("2026-03-04 05:06:07", root.get("start_time").textValue());
    assertEquals("2026-03-04 05:06:16", root.get("end_time").textValue());
    assertEquals(812.345, root.get("cold_time_us").doubleValue());
    assertEquals(1.25, root.get("warm_time_us").doubleValue());
    assertTrue(root.at("/config/blocking_collectives").isBoolean());
    assertEquals(1 << 30, root.at("/results/1/size").longValue());
    assertEquals(-1, root.at("/results/1/root").intValue());
    assertTrue(root.at("/results/1/root").isInt());
    assertEquals(1234567, root.at("/results/1/in_place/nwrong").longValue());
    assertEquals(123456.78, root.at("/results/1/out_of_place/time").doubleValue());
    assertTrue(root.at("/results/2/out_of_place/nwrong").isNull());
    assertFalse(root.at("/out_of_bounds/okay").booleanValue());
    assertEquals(2, root.at("/out_of_bounds/count").intValue());
    assertEquals(
        SampleRun.allReduce(false).averageBusBw(),
        root.at("/average_bus_bandwidth/bandwidth").doubleValue());
    assertTrue(root.at("/average_bus_bandwidth/okay").isNull());
    assertEquals(0, root.get("errors").size());
    assertTrue(root.get("nccl_version").isNull());
    assertEquals(51.5, root.at("/line_latency_ns/before").doubleValue());
    assertEquals(25.5, root.at("/results/0/line_latency_ns/before").doubleValue());
    assertEquals(238.25, root.at("/line_latency_ns/after").doubleValue());
    assertEquals(123, root.at("/memory/peak_resident_bytes").longValue());
    assertTrue(root.at("/memory/shared_resident_bytes").isNull());
    assertEquals("no NCCL", root.at("/memory/nccl_problem").textValue());
    assertEquals(123456.78, root.at("/results/1/out_of_place/rounds_us/0").doubleValue());
    assertEquals("Some Processor", root.at("/system/backends/0/facts/processor").textValue());
  }

  @Test
  void tellsWhatRunsOnGpusUse() throws IOException {
    JsonWriter writer = create();
    RunResult plain = SampleRun.sendRecv();
    BackendInfo.LibraryInfo library =
        new BackendInfo.LibraryInfo(
            "libnccl.so.2",
            "/opt/libnccl.so.2",
            "system",
            "2.30.7",
            "2.30.7",
            "2.19.0",
            "",
            List.of("/home/somebody: no such file"));
    BackendInfo cuda =
        new BackendInfo(Backend.CUDA, "", "", List.of(library), List.of(), List.of(), List.of());
    RunInfo info =
        new RunInfo(
            plain.info().program(),
            plain.info().options(),
            Backend.CUDA,
            "1.2.3",
            List.of(new RankInfo(0, 0, 1, "node", 0, "0000:0f:00", "NVIDIA H200")),
            plain.info().hosts(),
            List.of(cuda),
            SampleRun.START);
    MemoryUse memory =
        new MemoryUse(
            1 << 20,
            OptionalLong.of(1),
            OptionalLong.of(2),
            new NcclMemoryStatistics(10, false, 20, 30),
            "");
    SampleRun.tell(
        writer,
        new RunResult(
            info,
            plain.sizes(),
            5,
            1,
            LineLatency.UNKNOWN,
            memory,
            null,
            new PredictedMemory(40, 30, -10, 3),
            SampleRun.START));
    JsonNode root = read(writer);
    assertEquals(23007, root.get("nccl_version").intValue());
    assertEquals("0000:0f:00", root.at("/config/devices/0/device_hex").textValue());
    assertEquals("/opt/libnccl.so.2", root.at("/system/backends/0/libraries/0/path").textValue());
    assertEquals(30, root.at("/memory/nccl/total_bytes").longValue());
    assertEquals(40, root.at("/nccl_memory/predicted_bytes").longValue());
    assertEquals(30, root.at("/nccl_memory/taken_bytes").longValue());
    assertEquals(-10, root.at("/nccl_memory/least_difference_bytes").longValue());
    assertEquals(3, root.at("/nccl_memory/most_difference_bytes").longValue());
    assertTrue(root.at("/line_latency_ns/before").isNull());
    assertFalse(Files.readString(writer.file()).contains("somebody"));
  }

  @Test
  void showsNoSecrets() throws IOException {
    JsonWriter writer = create();
    SampleRun.tell(writer, SampleRun.allReduce(false));
    assertFalse(Files.readString(writer.file()).contains("secret"));
    assertEquals(
        List.of("CUDA_VISIBLE_DEVICES=0,1", "NCCL4J_NRANKS=2", "NCCL_DEBUG=INFO"),
        JsonWriter.shown(ENVIRONMENT));
  }

  @Test
  void hasNoInPlaceForSendRecv() throws IOException {
    JsonWriter writer = create();
    SampleRun.tell(writer, SampleRun.sendRecv());
    assertTrue(read(writer).at("/results/0/in_place").isNull());
  }

  @Test
  void tellsWhichRanksShareAHostAndTheNetwork() throws IOException {
    JsonWriter one = create();
    SampleRun.tell(one, SampleRun.sendRecv());
    assertEquals(1, read(one).get("hosts").intValue());
    assertTrue(read(one).get("network").isNull());
    assertEquals(0, read(one).at("/config/devices/1/host").intValue());

    JsonWriter two = create();
    SampleRun.tell(two, SampleRun.sendRecvBetweenHosts());
    assertEquals(2, read(two).get("hosts").intValue());
    assertEquals("netty (TCP)", read(two).at("/network/name").textValue());
    assertEquals("eth0", read(two).at("/network/interface").textValue());
    assertEquals("10.0.0.7", read(two).at("/network/address").textValue());
    assertEquals(1, read(two).at("/config/devices/1/host").intValue());
  }

  @Test
  void neverOverwrites() throws IOException {
    try (JsonWriter first = create();
        JsonWriter second = create();
        JsonWriter third = create()) {
      assertEquals("run.json", first.file().getFileName().toString());
      assertEquals("run.json.0", second.file().getFileName().toString());
      assertEquals("run.json.1", third.file().getFileName().toString());
    }
  }

  @Test
  void isValidAfterAFailure() throws IOException {
    JsonWriter writer = create();
    writer.started(SampleRun.allReduce(false).info());
    writer.measured(SampleRun.allReduce(false).sizes().getFirst());
    writer.failed("rank 1 is gone", SampleRun.START);
    writer.close();
    JsonNode root = read(writer);
    assertEquals(1, root.get("results").size());
    assertEquals("rank 1 is gone", root.at("/errors/0").textValue());
    assertNull(root.get("out_of_bounds"));

    try (JsonWriter early = create()) {
      early.failed("no device", SampleRun.START);
      assertEquals("no device", read(early).at("/errors/0").textValue());
    }
  }

  @Test
  void saysWhyItCannotWrite() {
    Path file = folder.resolve("missing").resolve("run.json");
    SystemErrorException e =
        assertThrows(
            SystemErrorException.class,
            () -> JsonWriter.create(file, List.of(), Map.of(), SampleRun.START));
    assertTrue(e.getMessage().startsWith("cannot write " + file), e.getMessage());
  }
}

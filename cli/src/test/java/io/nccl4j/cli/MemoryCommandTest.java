package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Predictions and measurements on the command line. */
class MemoryCommandTest {
  private static JsonNode json(Run run) throws Exception {
    assertEquals(0, run.code(), run.err());
    return new ObjectMapper().readTree(run.out());
  }

  @Test
  void predictsAsATable() {
    Run run = Run.ofLine(Map.of(), "memory --nranks 8 --gpus-per-node 8 --arch sm90 --nccl 2.19");
    assertEquals(0, run.code(), run.err());
    assertTrue(run.out().startsWith("predicted memory of one rank of 8 on cuda\n"), run.out());
    assertTrue(
        run.out()
            .lines()
            .anyMatch(
                line -> line.matches(" +NVLS +device +joining +1610612736 +1536.00 +logged .*")),
        run.out());
    assertTrue(run.out().contains("/dev/shm of one machine: 0 B"), run.out());
  }

  /** Each lever reaches the query. */
  @Test
  void everyLeverIsAnOption() throws Exception {
    Run run =
        Run.ofLine(
            Map.of("NCCL_NVLS_ENABLE", "0", "NCCL_BUFFSIZE", "1048576"),
            "memory --nranks 16 --gpus-per-node 4 --ranks-per-process 2 --arch SM_100 --nccl 2.28.7"
                + " --peers 3 --send-peers 2 --receive-peers 1 --channels 8 --min-ctas 2 --max-ctas"
                + " 12 --peer-channels 4 --max-p2p-peers 5 --buffsize 2M --ll-buffsize 64K"
                + " --ll128-buffsize 128K --nvls-channels 6 --nvls-chunksize 256K --p2p off --shm"
                + " on --cumem-host off --trees on --runtime-connect off --work-fifo 4M --fifo 8K"
                + " --json");
    JsonNode query = json(run).get("query");
    String expected =
        "{'nranks':16,'gpus_per_node':4,'ranks_per_process':2,'fifo':8192,'peers':3,"
            + "'send_peers':2,'receive_peers':1,'arch':100,'nccl':22807,'channels':8,"
            + "'min_ctas':2,'max_ctas':12,'peer_channels':4,"
            + "'max_p2p_peers':5,'buffsize':2097152,'ll_buffsize':65536,'ll128_buffsize':131072,"
            + "'nvls':0,'nvls_channels':6,'nvls_chunksize':262144,'p2p':0,'shm':1,'trees':1,"
            + "'cumem_host':0,'runtime_connect':0,'work_fifo':4194304}";
    assertEquals(new ObjectMapper().readTree(expected.replace('\'', '"')), query);
    assertTrue(json(run).get("shm_bytes_per_node").longValue() > 0);
  }

  @Test
  void sumsAreThoseOfTheLines() throws Exception {
    JsonNode json = json(Run.ofLine(Map.of(), "memory --json"));
    long device = 0;
    for (JsonNode line : json.get("predicted")) {
      device += line.get("place").textValue().equals("device") ? line.get("bytes").longValue() : 0;
      assertFalse(line.get("source").textValue().isEmpty());
    }
    assertTrue(device > 0);
    assertEquals(device, json.at("/sums/device").longValue());
    assertTrue(json.at("/query/channels").isNull());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "--nccl 2",
        "--nccl 2.18",
        "--arch sm60",
        "--arch hopper",
        "--nvls maybe",
        "--buffsize much",
        "--nranks 0",
        "--backend moon",
        "--measure --backend host -t 0"
      })
  void badOptionsAreRefused(String line) {
    Run run = Run.ofLine(Map.of(), "memory " + line);
    assertEquals(2, run.code(), run.err());
    assertEquals("", run.out());
    assertEquals(1, run.errLines().size(), run.err());
  }

  /** On the host every byte comes as predicted. */
  @Test
  void measuresTheHost() throws Exception {
    Run run = Run.ofLine(Map.of(), "memory --measure --backend host -t 2");
    assertEquals(0, run.code(), run.err());
    for (String place : new String[] {"shared", "heap"}) {
      assertEquals(
          2,
          run.out().lines().filter(l -> l.matches("  " + place + " +[0-9]+ +[0-9]+ +\\+0")).count(),
          run.out());
    }
    JsonNode json = json(Run.ofLine(Map.of(), "memory --measure --backend host -t 3 --json"));
    assertEquals(2, json.get("measured").size());
    assertEquals(3, json.at("/measured/0/ranks").size());
    assertEquals(
        json.at("/sums/shared"), json.at("/measured/1/ranks/0/lines/1/bytes"), json::toString);
    assertEquals(7, json.get("query").size());
  }
}

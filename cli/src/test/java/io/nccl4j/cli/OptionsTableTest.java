package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class OptionsTableTest {
  /** A bad option costs one line and exit code 2, and names itself. */
  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      quoteCharacter = '"',
      textBlock =
          """
          ""                                      | a command is missing
          bcast                                   | bcast
          --nonsense                              | --nonsense
          allreduce --nonsense                    | --nonsense
          allreduce -q                            | -q
          allreduce file                          | file
          allreduce -b                            | minbytes
          allreduce -b 8 -b 16                    | minbytes
          allreduce -b 8X                         | '8X' is not a size
          allreduce -b -1                         | '-1' is not a size
          allreduce -b 64M                        | minbytes 67108864 is above maxbytes 33554432
          allreduce -e 1T                         | '1T' is not a size
          allreduce -e 8                          | is above maxbytes 8
          allreduce -b 8 -i 0                     | stepbytes is 0
          allreduce -i x                          | 'x' is not a size
          allreduce -f 0                          | stepfactor is 0
          allreduce -f two                        | 'two'
          allreduce -b 0 -f 2                     | never leaves minbytes 0
          allreduce -t 0                          | nthreads is 0
          allreduce -t 1.5                        | '1.5'
          allreduce -g 0                          | ngpus is 0
          allreduce -g -3                         | ngpus is -3
          allreduce -t 1000 -g 1000               | too many ranks
          allreduce -n 0                          | iters is 0
          allreduce -n 99999999999                | '99999999999'
          allreduce -w -1                         | warmup_iters is -1
          allreduce -c -1                         | check is -1
          allreduce -o xor                        | unknown op 'xor'
          allreduce -d float7                     | unknown data type 'float7'
          allreduce -r -2                         | root is -2
          allreduce -r 1                          | root is 1, but there are 1 ranks
          allreduce -z 4                          | blocking is 4
          allreduce -z -1                         | blocking is -1
          allreduce -S 2                          | report_timestamps is 2
          allreduce -J /nonexistent/run.json      | cannot create /nonexistent/run.json
          allreduce --backend tpu                 | unknown backend 'tpu'
          allreduce --procs 0                     | procs is 0
          allreduce --procs 2000                  | procs is 2000
          allreduce --procs 2 -r 2                | root is 2, but there are 2 ranks
          allreduce -m 0                          | agg_iters is 0
          allreduce -N -1                         | run_cycles is -1
          allreduce -p 2                          | parallel_init is 2
          allreduce -y 2                          | stream_null is 2
          allreduce -T -1                         | timeout is -1
          allreduce -G -1                         | cudagraph is -1
          allreduce -G 1 -z 3                     | cudagraph and blocking cannot be combined
          allreduce -G 1 -y 1                     | cudagraph and stream_null cannot be combined
          allreduce -G 1 -I 1                     | per_iter_timing and cudagraph cannot be combined
          allreduce -C 2                          | report_cputime is 2
          allreduce -a 4                          | average is 4
          allreduce -R 3                          | local_register is 3
          allreduce -x 3                          | cta_policy is 3
          allreduce -D 1                          | device implementation 1 needs symmetric windows
          allreduce -D 5 -R 2                     | allreduce has no device implementation 5
          broadcast -D 1 -R 2                     | broadcast has no device implementation 1
          allreduce -D 1 -R 2 -o max              | device implementations only sum
          allreduce -D 2 -R 2 -d bfloat16         | has no bfloat16
          allreduce -D 4 -R 2 -d int8             | has no int8
          allreduce -D -1                         | device_implementation is -1
          allreduce -V 129                        | device_cta_count is 129
          allreduce -V 0                          | device_cta_count is 0
          allreduce -M 2                          | memory is 2
          allreduce -u -1                         | unalign is -1
          allreduce -I 2                          | per_iter_timing is 2
          allreduce -K 1                          | per_iter_skip is 1 without per_iter_timing
          allreduce -I 1 -K 20                    | per_iter_skip is 20 of 20 iterations
          broadcast -r every                      | root is 'every'
          sendrecv -n 0                           | iters is 0
          all_reduce_perf -n 0                    | iters is 0
          sendrecv_perf -n 0                      | iters is 0
          alltoallv_perf -n 0                     | iters is 0
          hypercube -t 3                          | there are 3 ranks
          hypercube -t 3 --procs 2                | there are 6 ranks
          info --backend tpu                      | unknown backend 'tpu'
          info --yaml                             | --yaml
          info --algo flat                        | --algo and --proto are for --tuning
          info --tuning --proto fast              | proto is 'fast', which the host backend does not have
          info --tuning --nranks 0                | nranks is 0
          compare                                 | BASE
          compare a.json                          | CHANGED
          compare a.json b.json --threshold x     | 'x'
          compare a.json b.json --threshold 100   | threshold is 1.0
          compare a.json b.json --level 0         | level is 0.0
          turns                                   | BASE
          turns a                                 | CHANGED
          turns a b -n 0                          | pairs is 0
          turns a b --level 0                     | level is 0.0
          report                                  | FILE
          selftest --backend tpu                  | unknown backend 'tpu'
          selftest fifo                           | fifo
          selftest fifo-leak -n 0                 | iters is 0
          selftest fifo-leak --backend auto       | backend is auto
          selftest first-call --backend gpu       | 'gpu'
          selftest fifo-leak --procs 0            | procs is 0
          selftest fifo-leak -t 2                 | -t
          selftest first-call -n 0                | pairs is 0
          selftest first-call --pairs x           | 'x'
          selftest soak --minutes 0               | minutes is 0
          selftest soak --minutes NaN             | minutes is NaN
          selftest soak --ranks 1                 | ranks is 1
          selftest soak --processes 3             | 3 processes for 4 ranks
          selftest soak --processes 0             | 0 processes
          selftest soak --episodes 0              | episodes 0
          selftest soak --first -1                | first is -1
          """)
  void refusesInOneLine(String line, String part) {
    refused(Run.ofLine(Map.of(), line), part);
  }

  private static void refused(Run run, String part) {
    assertEquals(2, run.code(), run.toString());
    assertEquals("", run.out());
    assertEquals(1, run.errLines().size(), run.err());
    assertTrue(run.err().startsWith("nccl4j: "), run.err());
    assertTrue(run.err().contains(part), run.err());
    assertTrue(run.err().strip().endsWith("--help"), run.err());
  }

  @ParameterizedTest
  @CsvSource({
    "NCCL_TESTS_SPLIT, XOR 3, use AND",
    "NCCL_TESTS_SPLIT, MOD 0, divide by 1 or more",
    "NCCL_TESTS_SPLIT_MASK, 0xg, use a hexadecimal number",
    "NCCL_TESTS_DEVICE, first, use the number of a device",
    "NCCL_TESTS_MIN_BW, -1, use a number of GB/s",
    "NCCL_TESTS_ALLTOALLV_SPREAD, 2, use a number from 0 to 1"
  })
  void refusesVariables(String variable, String value, String part) {
    refused(Run.ofLine(Map.of(variable, value), "alltoallv -b 8"), part);
  }

  @Test
  void refusesIncompleteEnvironments() {
    String line = "allreduce -t 2";
    refused(Run.ofLine(Map.of("NCCL4J_RANK", "0"), line), "NCCL4J_NRANKS is not set");
    refused(Run.ofLine(Map.of("NCCL4J_NRANKS", "4"), line), "NCCL4J_RANK is not set");
    refused(
        Run.ofLine(Map.of("NCCL4J_RANK", "0", "NCCL4J_NRANKS", "4"), line),
        "set NCCL4J_JOB to a name");
    refused(Run.ofLine(environment("x", "4"), line), "NCCL4J_RANK is 'x'; use a number");
    refused(Run.ofLine(environment("3", "4"), line), "ranks 3 to 4 asked for");
    refused(Run.ofLine(environment("-1", "4"), line), "NCCL4J_RANK is -1, but there are 4 ranks");
    refused(Run.ofLine(environment("0", "4"), "allreduce --procs 2"), "cannot be combined");
  }

  private static Map<String, String> environment(String rank, String nranks) {
    return Map.of("NCCL4J_RANK", rank, "NCCL4J_NRANKS", nranks, "NCCL4J_UNIQUE_ID", "00");
  }

  @ParameterizedTest
  @ValueSource(
      strings = {"allreduce --help", "all_reduce_perf -h", "sendrecv -h", "sendrecv_perf --help"})
  void helpNamesEveryOption(String line) {
    Run run = Run.ofLine(Map.of(), line);
    assertEquals(0, run.code());
    assertEquals("", run.err());
    for (String option :
        new String[] {
          "-t, --nthreads",
          "-g, --ngpus",
          "-b, --minbytes",
          "-e, --maxbytes",
          "-i, --stepbytes",
          "-f, --stepfactor",
          "-n, --iters",
          "-w, --warmup_iters",
          "-c, --check",
          "-o, --op",
          "-d, --datatype",
          "-r, --root",
          "-z, --blocking",
          "-S, --report_timestamps",
          "-J, --output_file",
          "-m, --agg_iters",
          "-G, --cudagraph",
          "-K, --per_iter_skip",
          "--procs",
          "--backend",
          "--verbose",
          "--version",
          "NCCL4J_UNIQUE_ID_FILE",
          "7 wrong data"
        }) {
      assertTrue(run.out().contains(option), option);
    }
    run.out().lines().forEach(text -> assertTrue(text.length() <= 100, text));
  }

  @Test
  void topHelpNamesTheCommands() {
    Run run = Run.of("--help");
    assertEquals(0, run.code());
    assertTrue(run.out().contains("allreduce, all_reduce_perf"), run.out());
    assertTrue(run.out().contains("sendrecv, sendrecv_perf"), run.out());
    assertTrue(run.out().contains("alltoallv, alltoallv_perf"), run.out());
  }
}

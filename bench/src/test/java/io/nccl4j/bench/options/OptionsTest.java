package io.nccl4j.bench.options;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.nccl4j.Backend;
import io.nccl4j.DataType;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.run.RankRange;
import java.util.List;
import java.util.function.UnaryOperator;
import org.junit.jupiter.api.Test;

class OptionsTest {
  @Test
  void hasNcclTestsDefaults() {
    Options options = Options.builder().build();
    assertEquals(1, options.threads());
    assertEquals(1, options.gpus());
    assertEquals(new Sweep(32 << 20, 32 << 20, 1 << 20, 1), options.sweep());
    assertEquals(20, options.iterations());
    assertEquals(1, options.warmup());
    assertEquals(1, options.check());
    assertEquals(List.of(ReduceOp.Kind.SUM), options.ops());
    assertEquals(List.of(DataType.FLOAT32), options.types());
    assertEquals(0, options.root());
    assertEquals(Blocking.NONE, options.blocking());
    assertEquals(Backend.AUTO, options.backend());
    assertNull(options.output());
  }

  @Test
  void namesWhatIsOutOfRange() {
    refused("nthreads is 0; use 1 or more", o -> o.threads(0));
    refused("ngpus is -1; use 1 or more", o -> o.gpus(-1));
    refused(
        "nthreads 64 times ngpus 64 is too many ranks; use at most 1024 in one process",
        o -> o.threads(64).gpus(64));
    refused("iters is 0; use 1 or more", o -> o.iterations(0));
    refused("warmup_iters is -1; use 0 or more", o -> o.warmup(-1));
    refused("check is -1; use 0 or more", o -> o.check(-1));
    refused("root is -2; use -1 or more", o -> o.root(-2));
    refused("no op or no datatype is given; name one, or all", o -> o.ops(List.of()));
  }

  private static void refused(String message, UnaryOperator<Options.Builder> change) {
    Options.Builder builder = change.apply(Options.builder());
    assertEquals(
        message, assertThrows(InvalidArgumentException.class, builder::build).getMessage());
  }

  @Test
  void knowsNcclTestsNames() {
    assertEquals(6, Options.ops("all").size());
    assertEquals(12, Options.types("all").size());
    assertEquals(List.of(ReduceOp.Kind.PRE_MUL_SUM), Options.ops("mulsum"));
    assertEquals(List.of(DataType.FLOAT8_E5M2), Options.types("f8e5m2"));
    assertThrows(InvalidArgumentException.class, () -> Options.ops("xor"));
    assertThrows(InvalidArgumentException.class, () -> Options.types("float8"));
    assertEquals(Blocking.WAIT, Blocking.ofNumber(2));
    assertThrows(InvalidArgumentException.class, () -> Blocking.ofNumber(4));
  }

  @Test
  void checksRanksAgainstTheRun() {
    Options options = Options.builder().threads(2).gpus(2).root(6).build();
    options.checkRanks(4, 8);
    assertThrows(InvalidArgumentException.class, () -> options.checkRanks(5, 8));
    assertThrows(InvalidArgumentException.class, () -> options.checkRanks(-1, 8));
    assertThrows(InvalidArgumentException.class, () -> options.checkRanks(0, 6));
    assertThrows(InvalidArgumentException.class, () -> new RankRange(8, 8, null));
    assertThrows(InvalidArgumentException.class, () -> new RankRange(4, 8, null));
  }
}

package io.nccl4j.internal.cuda.module;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.cuda.module.PtxSignature.Parameter;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;

/** Declarations of kernels as clang, nvcc and people write them. */
class PtxSignatureTest {
  private static final String PTX =
      """
      // .visible .entry comment(.param .u64 a)
      .version 7.8
      .target sm_90a
      .address_size 64
      .func helper(.param .b64 a) { ret; }
      /* .entry block() */
      .visible .entry _Z3sumPfi6Config(
      	.param .u64 .ptr .global .align 4 _Z3sum_param_0,
      	.param .u32 _Z3sum_param_1, // the count
      	.param .align 8 .b8 _Z3sum_param_2[24]
      )
      .maxntid 256, 1, 1
      { ret; }
      .entry none { ret; }
      .weak .entry empty ( ) { ret; }
      .entry $odd%name(.param .f32 a,.param .f64 b , .param .b16 c, .param.texref t) { ret; }
      """;

  @Test
  void findsTheKernelsAndTheirParameters() {
    Map<String, PtxSignature> all = PtxSignature.parse(PTX);
    assertEquals(
        List.of("_Z3sumPfi6Config", "none", "empty", "$odd%name"), List.copyOf(all.keySet()));
    assertEquals(
        List.of(
            new Parameter("u64", 8, false),
            new Parameter("u32", 4, false),
            new Parameter("b8", 24, true)),
        all.get("_Z3sumPfi6Config").parameters());
    assertEquals(List.of(), all.get("none").parameters());
    assertEquals(List.of(), all.get("empty").parameters());
    assertEquals("(.f32, .f64, .b16, .texref)", all.get("$odd%name").toString());
  }

  @Test
  void numbersFitByKindAndSize() {
    Parameter f32 = new Parameter("f32", 4, false);
    assertTrue(f32.takes(1f));
    assertFalse(f32.takes(1) || f32.takes(1.0) || f32.takes(null));
    Parameter b32 = new Parameter("b32", 4, false);
    assertTrue(b32.takes(1f) && b32.takes(1));
    assertFalse(b32.takes(1L) || b32.takes((short) 1));
    Parameter f64 = new Parameter("f64", 8, false);
    assertTrue(f64.takes(1.0));
    assertFalse(f64.takes(1L));
    assertTrue(new Parameter("f16", 2, false).takes((short) 0x3c00));
    assertTrue(new Parameter("s8", 1, false).takes((byte) 1));
    Parameter texture = new Parameter("texref", 0, false);
    assertFalse(texture.takes(1L) || texture.takes((byte) 0) || texture.takes(null));
  }
}

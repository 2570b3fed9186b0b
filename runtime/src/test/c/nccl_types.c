/* Reductions for all types, rounding to the type at each step as NCCL's kernels do. */
#include "nccl_internal.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

size_t nn_type_size(ncclDataType_t type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

static uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/*
 * Small binary floating-point formats with `mantissa` stored bits and `bias`. What is too big becomes
 * infinity, or with `max` (of fp8, which NCCL converts with saturation) the greatest finite value.
 */
static unsigned round_small(float value, int mantissa, int bias, unsigned nan, unsigned max,
    bool saturate) {
  uint32_t bits = bits_of(value);
  unsigned sign = bits >> 31;
  int exponent_bits = mantissa == 10 || mantissa == 2 ? 5 : 4;
  sign <<= mantissa + exponent_bits;
  if (isnan(value)) {
    return sign | nan;
  }
  float magnitude = fabsf(value);
  int exponent;
  frexpf(magnitude, &exponent);
  exponent -= 1;
  if (exponent < 1 - bias) {
    exponent = 1 - bias;
  }
  /* In units of the last place; the division by a power of two is exact. */
  float units = rintf(ldexpf(magnitude, mantissa - exponent));
  if (magnitude == 0 || units == 0) {
    return sign;
  }
  if (isinf(magnitude) || ldexpf(units, exponent - mantissa) > ldexpf(1, 100)) {
    return sign | (saturate ? max : max + 1);
  }
  long whole = (long)units;
  unsigned result = whole < 1L << mantissa
      ? (unsigned)whole
      : (unsigned)(((long)(exponent + bias) << mantissa) + whole - (1L << mantissa));
  return sign | (result > max ? (saturate ? max : max + 1) : result);
}

static float widen_small(unsigned bits, int mantissa, int exponent_bits, int bias) {
  unsigned sign = bits >> (mantissa + exponent_bits);
  int exponent = (int)(bits >> mantissa) & ((1 << exponent_bits) - 1);
  unsigned fraction = bits & ((1u << mantissa) - 1);
  float value;
  if (exponent == (1 << exponent_bits) - 1 && exponent_bits == 5) {
    value = fraction == 0 ? INFINITY : NAN;
  } else if (exponent_bits == 4 && (bits & 0x7f) == 0x7f) {
    value = NAN;
  } else if (exponent == 0) {
    value = ldexpf((float)fraction, 1 - bias - mantissa);
  } else {
    value = ldexpf((float)(fraction | 1u << mantissa), exponent - bias - mantissa);
  }
  return sign != 0 ? -value : value;
}

/* Normal numbers, which are most, go a short way. */
static float half_to_float(uint16_t bits) {
  uint32_t exponent = bits >> 10 & 31;
  if (exponent > 0 && exponent < 31) {
    return float_of((uint32_t)(bits & 0x8000) << 16 | (exponent + 112) << 23
        | (uint32_t)(bits & 0x3ff) << 13);
  }
  return widen_small(bits, 10, 5, 15);
}

static uint16_t float_to_half(float value) {
  uint32_t bits = bits_of(value);
  uint32_t exponent = bits >> 23 & 255;
  if (exponent > 112 && exponent < 142) {
    /* A carry of the rounding goes on into the exponent, as it must. */
    uint32_t magnitude = (bits & 0x7fffffff) - (112u << 23);
    return (uint16_t)((bits >> 16 & 0x8000)
        | (magnitude + 0xfff + (magnitude >> 13 & 1)) >> 13);
  }
  return (uint16_t)round_small(value, 10, 15, 0x7fff, 0x7bff, false);
}

/* An fp8 number's value, and the fp8 number next to a half: made once, as the long way is slow. */
struct fp8 {
  float value[1 << 8];
  uint8_t next_to[1 << 16];
};

static struct fp8 e4m3;
static struct fp8 e5m2;
static pthread_once_t fp8_once = PTHREAD_ONCE_INIT;

static void make_fp8(void) {
  for (unsigned bits = 0; bits < 1 << 8; bits++) {
    e4m3.value[bits] = widen_small(bits, 3, 4, 7);
    e5m2.value[bits] = widen_small(bits, 2, 5, 15);
  }
  for (unsigned half = 0; half < 1 << 16; half++) {
    float value = half_to_float((uint16_t)half);
    e4m3.next_to[half] = (uint8_t)round_small(value, 3, 7, 0x7f, 0x7e, true);
    e5m2.next_to[half] = (uint8_t)round_small(value, 2, 15, 0x7f, 0x7b, true);
  }
}

static const struct fp8 *fp8(ncclDataType_t type) {
  pthread_once(&fp8_once, make_fp8);
  return type == ncclFloat8e4m3 ? &e4m3 : &e5m2;
}

static float load(const void *values, size_t i, ncclDataType_t type) {
  switch ((int)type) {
    case ncclFloat16:
      return half_to_float(((const uint16_t *)values)[i]);
    case ncclBfloat16:
      return float_of((uint32_t)((const uint16_t *)values)[i] << 16);
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return fp8(type)->value[((const uint8_t *)values)[i]];
    default:
      return ((const float *)values)[i];
  }
}

static void store(void *values, size_t i, ncclDataType_t type, float value) {
  switch ((int)type) {
    case ncclFloat16:
      ((uint16_t *)values)[i] = float_to_half(value);
      break;
    case ncclBfloat16: {
      uint32_t bits = bits_of(value);
      ((uint16_t *)values)[i] =
          isnan(value) ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
      break;
    }
    /* Sums of fp8 are made in half and rounded from there. */
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      ((uint8_t *)values)[i] = fp8(type)->next_to[float_to_half(value)];
      break;
    default:
      ((float *)values)[i] = value;
      break;
  }
}

/* Integers wrap: they are computed without sign. */
#define REDUCE_INTS(T, U)                                                                           \
  do {                                                                                              \
    T *a = into;                                                                                    \
    const T *b = from;                                                                              \
    for (size_t i = 0; i < count; i++) {                                                            \
      switch ((int)op) {                                                                            \
        case ncclProd:                                                                              \
          a[i] = (T)((U)a[i] * (U)b[i]);                                                            \
          break;                                                                                    \
        case ncclMax:                                                                               \
          a[i] = a[i] > b[i] ? a[i] : b[i];                                                         \
          break;                                                                                    \
        case ncclMin:                                                                               \
          a[i] = a[i] < b[i] ? a[i] : b[i];                                                         \
          break;                                                                                    \
        default:                                                                                    \
          a[i] = (T)((U)a[i] + (U)b[i]);                                                            \
          break;                                                                                    \
      }                                                                                             \
    }                                                                                               \
  } while (0)

/*
 * As a GPU's minimum: the number where the other operand is NaN, also a signalling one, which fmin
 * would hand on; and -0 is less than +0.
 */
static double lesser(double a, double b) {
  if (isnan(a) || isnan(b)) {
    return isnan(a) ? b : a;
  }
  return a == b ? (signbit(a) ? a : b) : a < b ? a : b;
}

static double greater(double a, double b) {
  if (isnan(a) || isnan(b)) {
    return isnan(a) ? b : a;
  }
  return a == b ? (signbit(a) ? b : a) : a > b ? a : b;
}

static double combine(double a, double b, ncclRedOp_t op) {
  switch ((int)op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return greater(a, b);
    case ncclMin:
      return lesser(a, b);
    default:
      return a + b;
  }
}

static float combine_floats(float a, float b, ncclRedOp_t op) {
  switch ((int)op) {
    case ncclProd:
      return a * b;
    case ncclMax:
      return (float)greater(a, b);
    case ncclMin:
      return (float)lesser(a, b);
    default:
      return a + b;
  }
}

void nn_reduce(void *into, const void *from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  switch ((int)type) {
    case ncclInt8:
      REDUCE_INTS(int8_t, uint32_t);
      break;
    case ncclUint8:
      REDUCE_INTS(uint8_t, uint32_t);
      break;
    case ncclInt32:
      REDUCE_INTS(int32_t, uint32_t);
      break;
    case ncclUint32:
      REDUCE_INTS(uint32_t, uint32_t);
      break;
    case ncclInt64:
      REDUCE_INTS(int64_t, uint64_t);
      break;
    case ncclUint64:
      REDUCE_INTS(uint64_t, uint64_t);
      break;
    case ncclFloat32:
      for (size_t i = 0; i < count; i++) {
        ((float *)into)[i] = combine_floats(((float *)into)[i], ((const float *)from)[i], op);
      }
      break;
    case ncclFloat64:
      for (size_t i = 0; i < count; i++) {
        ((double *)into)[i] = combine(((double *)into)[i], ((const double *)from)[i], op);
      }
      break;
    default:
      for (size_t i = 0; i < count; i++) {
        store(into, i, type, combine_floats(load(into, i, type), load(from, i, type), op));
      }
      break;
  }
}

#define SCALE_INTS(T, U)                                                                            \
  do {                                                                                              \
    T by;                                                                                           \
    memcpy(&by, scalar, sizeof by);                                                                 \
    for (size_t i = 0; i < count; i++) {                                                            \
      ((T *)values)[i] = (T)((U)((T *)values)[i] * (U)by);                                          \
    }                                                                                               \
  } while (0)

void nn_scale(void *values, size_t count, ncclDataType_t type, const void *scalar) {
  switch ((int)type) {
    case ncclInt8:
    case ncclUint8:
      SCALE_INTS(uint8_t, uint32_t);
      break;
    case ncclInt32:
    case ncclUint32:
      SCALE_INTS(uint32_t, uint32_t);
      break;
    case ncclInt64:
    case ncclUint64:
      SCALE_INTS(uint64_t, uint64_t);
      break;
    case ncclFloat64:
      for (size_t i = 0; i < count; i++) {
        ((double *)values)[i] *= *(const double *)scalar;
      }
      break;
    default:
      for (size_t i = 0; i < count; i++) {
        store(values, i, type, load(values, i, type) * load(scalar, 0, type));
      }
      break;
  }
}

#define DIVIDE_INTS(T)                                                                              \
  do {                                                                                              \
    for (size_t i = 0; i < count; i++) {                                                            \
      ((T *)values)[i] = (T)(((T *)values)[i] / (T)divisor);                                        \
    }                                                                                               \
  } while (0)

void nn_divide(void *values, size_t count, ncclDataType_t type, int divisor) {
  switch ((int)type) {
    case ncclInt8:
      DIVIDE_INTS(int8_t);
      break;
    case ncclUint8:
      DIVIDE_INTS(uint8_t);
      break;
    case ncclInt32:
      DIVIDE_INTS(int32_t);
      break;
    case ncclUint32:
      DIVIDE_INTS(uint32_t);
      break;
    case ncclInt64:
      DIVIDE_INTS(int64_t);
      break;
    default:
      DIVIDE_INTS(uint64_t);
      break;
  }
}

bool nn_inverse(void *scalar, ncclDataType_t type, int n) {
  if (type <= ncclUint64) {
    return false;
  }
  if (type == ncclFloat64) {
    *(double *)scalar = 1.0 / n;
  } else {
    store(scalar, 0, type, (float)(1.0 / n));
  }
  return true;
}

/*
 * What Contents does on GPUs: writes patterns into buffers and compares buffers with patterns. The
 * arithmetic is that of Pattern and Elements, bit for bit, which know elements by their width only.
 *
 * It is C that is CUDA, too: clang makes contents.ptx of it, any C compiler the twin for the
 * stand-in of libcuda, which defines EXECUTE, THREAD, THREADS, ADD and MIN itself.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#ifdef __CUDA__
#define DEVICE static inline __attribute__((device))
#define EXECUTE extern "C" __attribute__((global)) void
#define THREAD                                                                                     \
  ((u64)__nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x()                             \
      + __nvvm_read_ptx_sreg_tid_x())
#define THREADS ((u64)__nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x())
#define ADD(to, value) __nvvm_atom_add_gen_ll((long long *)(to), (long long)(value))
#define MIN(to, value) __nvvm_atom_min_gen_ull((to), (value))
#else
#define DEVICE static inline
#endif

/* Counters of a comparison: wrong elements, and the smallest index of one; −1 before. */
struct wrong {
  u64 count;
  u64 first;
};

/* The column of an element; place is the element's index plus the pattern's seed. */
DEVICE u32 column(u64 place) {
  u64 x = place * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 32) * 0xd6e8feb86659fd93ull;
  return (u32)(x >> 54);
}

/* Sign and magnitude to a line on which neighbours differ by 1. */
DEVICE long long ordered(u64 bits, u32 unused) {
  long long magnitude = (long long)(bits << (unused + 1) >> (unused + 1));
  return (long long)(bits << unused) < 0 ? -magnitude : magnitude;
}

DEVICE u64 ulps(u64 a, u64 b, u32 unused) {
  /* As in Java, the difference may wrap around. */
  long long difference = (long long)((u64)ordered(a, unused) - (u64)ordered(b, unused));
  return difference < 0 ? 0 - (u64)difference : (u64)difference;
}

/*
 * write: element i becomes the table's entry in column(place + i), with the bits of flip inverted.
 * check: adds to the counters; an element is right if its bits are, or if it is a floating-point
 * number at most tolerance representable values off.
 */
#define KERNELS(bits, type)                                                                        \
  EXECUTE nccl4j_write##bits(type *to, const type *table, u64 place, u64 count, u64 flip) {        \
    for (u64 i = THREAD; i < count; i += THREADS) {                                                \
      to[i] = (type)(table[column(place + i)] ^ (type)flip);                                       \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  EXECUTE nccl4j_check##bits(const type *got, const type *table, u64 place, u64 count,             \
      u64 tolerance, struct wrong *wrong) {                                                        \
    u64 found = 0;                                                                                 \
    u64 first = 0;                                                                                 \
    for (u64 i = THREAD; i < count; i += THREADS) {                                                \
      type expected = table[column(place + i)];                                                    \
      if (got[i] != expected && (tolerance == 0                                                    \
          || (long long)ulps(got[i], expected, 64 - bits) > (long long)tolerance)) {               \
        first = found == 0 ? i : first;                                                            \
        found++;                                                                                   \
      }                                                                                            \
    }                                                                                              \
    if (found > 0) {                                                                               \
      ADD(&wrong->count, found);                                                                   \
      MIN(&wrong->first, first);                                                                   \
    }                                                                                              \
  }

KERNELS(8, u8)
KERNELS(16, u16)
KERNELS(32, u32)
KERNELS(64, u64)

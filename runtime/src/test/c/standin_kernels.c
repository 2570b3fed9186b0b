/*
 * The twins of the project's own kernels, of the same sources as the PTX. A kernel is called for
 * one thread after another.
 */
#include "cuda_internal.h"

static _Thread_local unsigned long long thread;
static _Thread_local unsigned long long threads;

#define EXECUTE static void
#define THREAD thread
#define THREADS threads
#define ADD(to, value) (*(to) += (value))
#define MIN(to, value) (*(to) = *(to) < (value) ? *(to) : (value))
#include "bench/src/main/kernels/contents.cu"

#define EACH_THREAD(call)                                                                           \
  threads = (u64)grid[0] * block[0];                                                                \
  for (thread = 0; thread < threads; thread++) {                                                    \
    call;                                                                                           \
  }

#define AT(type, i) (*(type *)params[i])

/* Registers the twins of one width. */
#define TWINS(bits, type)                                                                           \
  static void write##bits(void **params, const unsigned grid[3], const unsigned block[3]) {         \
    EACH_THREAD(nccl4j_write##bits(                                                                 \
        AT(type *, 0), AT(type *, 1), AT(u64, 2), AT(u64, 3), AT(u64, 4)))                          \
  }                                                                                                 \
  static void check##bits(void **params, const unsigned grid[3], const unsigned block[3]) {         \
    EACH_THREAD(nccl4j_check##bits(AT(type *, 0), AT(type *, 1), AT(u64, 2), AT(u64, 3),            \
        AT(u64, 4), AT(struct wrong *, 5)))                                                         \
  }                                                                                                 \
  __attribute__((constructor)) static void add##bits(void) {                                        \
    static const size_t sizes[] = {8, 8, 8, 8, 8, 8};                                               \
    standin_kernel("nccl4j_write" #bits, write##bits, 5, sizes);                                    \
    standin_kernel("nccl4j_check" #bits, check##bits, 6, sizes);                                    \
  }

TWINS(8, u8)
TWINS(16, u16)
TWINS(32, u32)
TWINS(64, u64)

/* For tests of modules; the PTX is theirs. */
static void test_add(void **params, const unsigned grid[3], const unsigned block[3]) {
  EACH_THREAD(for (u64 i = thread; i < AT(u32, 1); i += threads) {
    AT(int *, 0)[i] += AT(int, 2);
  })
}

struct numbers {
  int at[3];
};

static void test_store(void **params, const unsigned grid[3], const unsigned block[3]) {
  struct numbers e = AT(struct numbers, 5);
  double *to = AT(double *, 0);
  to[0] = AT(signed char, 1);
  to[1] = AT(short, 2);
  to[2] = AT(float, 3);
  to[3] = AT(double, 4);
  ((int *)to)[8] = (e.at[0] + e.at[1] + e.at[2]) * (int)(grid[0] * block[0]);
}

__attribute__((constructor)) static void add_tests(void) {
  standin_kernel("test_add", test_add, 3, (const size_t[]){8, 4, 4});
  standin_kernel("test_store", test_store, 6, (const size_t[]){8, 1, 2, 4, 8, 12});
}

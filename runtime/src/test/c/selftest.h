/* What the parts of the self test share. */
#ifndef SELFTEST_H
#define SELFTEST_H

#include "nccl_abi.h"
#include "standin.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define MB2 ((size_t)2 << 20)

#define EXPECT(condition)                                                                           \
  do {                                                                                              \
    if (!(condition)) {                                                                             \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                       \
      exit(1);                                                                                      \
    }                                                                                               \
  } while (0)

#define CU(call) expect_code(__LINE__, #call, (int)(call), 0)
#define NC(call) expect_code(__LINE__, #call, (int)(call), 0)
#define FAILS(code, call) expect_code(__LINE__, #call, (int)(call), code)

void expect_code(int line, const char *call, int code, int expected);

/* Makes the context of a device current, and keeps it. */
void use_device(int device);

/* Device memory by the VMM calls. */
void *allocate(int device, size_t size);
void release(void *at, size_t size);

/* As the initialiser of nccl.h. */
ncclConfig_t config(void);

/* A body run by so many ranks, as threads. */
struct rank {
  int rank;
  int nranks;
  ncclUniqueId id;
  void (*body)(struct rank *rank);
  ncclComm_t comm;
  CUstream stream;
};

void *run_rank(void *argument);
void on_ranks(int nranks, void (*body)(struct rank *rank));

/* Bodies that processes run, too. */
void body_all_reduce(struct rank *rank);
void body_window(struct rank *rank);

/* Runs this program as rank 0 and 1 of two processes; the same with a fault in their environment. */
void in_processes(const char *body, const char *fault, int status);

struct test {
  const char *name;
  void (*run)(void);
};

extern const struct test cuda_tests[];
extern const struct test comm_tests[];
extern const struct test type_tests[];

#endif

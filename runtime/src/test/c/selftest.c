/*
 * Proves the stand-ins against themselves: `selftest` runs all, `selftest NAME` one. Linked to both
 * libraries, calls only what a program of CUDA and NCCL could, and the control in standin.h.
 */
#define _GNU_SOURCE
#include "selftest.h"
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void expect_code(int line, const char *call, int code, int expected) {
  if (code != expected) {
    fprintf(stderr, "line %d: %s gave %d, not %d (%s)\n", line, call, code, expected,
        ncclGetLastError(NULL));
    exit(1);
  }
}

void use_device(int device) {
  CUcontext ctx;
  CU(cuInit(0));
  CU(cuDevicePrimaryCtxRetain(&ctx, device));
  CU(cuCtxSetCurrent(ctx));
}

/* Device memory by the VMM calls, for all devices. */
void *allocate(int device, size_t size) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device},
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr ptr;
  CU(cuMemCreate(&handle, size, &prop, 0));
  CU(cuMemAddressReserve(&ptr, size, 0, 0, 0));
  CU(cuMemMap(ptr, size, 0, handle, 0));
  CU(cuMemSetAccess(ptr, size, &access, 1));
  CU(cuMemRelease(handle));
  return (void *)(uintptr_t)ptr;
}

void release(void *at, size_t size) {
  CU(cuMemUnmap((CUdeviceptr)(uintptr_t)at, size));
  CU(cuMemAddressFree((CUdeviceptr)(uintptr_t)at, size));
}

ncclConfig_t config(void) {
  ncclConfig_t config;
  memset(&config, 0, sizeof config);
  config.size = sizeof config;
  config.magic = 0xcafebeef;
  config.version = 23007;
  for (int *field = &config.blocking; field <= &config.graphStreamOrdering; field++) {
    *field = NCCL_CONFIG_UNDEF_INT;
  }
  config.netName = NULL;
  config.commName = NULL;
  return config;
}

void *run_rank(void *argument) {
  struct rank *rank = argument;
  use_device(rank->rank);
  CU(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
  NC(ncclCommInitRank(&rank->comm, rank->nranks, rank->id, rank->rank));
  rank->body(rank);
  if (rank->comm != NULL) {
    NC(ncclCommDestroy(rank->comm));
  }
  CU(cuStreamDestroy_v2(rank->stream));
  CU(cuDevicePrimaryCtxRelease_v2(rank->rank));
  return NULL;
}

void on_ranks(int nranks, void (*body)(struct rank *rank)) {
  struct rank ranks[16];
  pthread_t threads[16];
  ncclUniqueId id;
  NC(ncclGetUniqueId(&id));
  for (int r = 0; r < nranks; r++) {
    ranks[r] = (struct rank){.rank = r, .nranks = nranks, .id = id, .body = body};
    EXPECT(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0);
  }
  for (int r = 0; r < nranks; r++) {
    pthread_join(threads[r], NULL);
  }
}

void in_processes(const char *body, const char *fault, int status) {
  char path[4096] = "";
  ncclUniqueId id;
  pid_t children[2];
  NC(ncclGetUniqueId(&id));
  EXPECT(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
  for (int r = 0; r < 2; r++) {
    children[r] = fork();
    if (children[r] == 0) {
      char rank[8];
      snprintf(rank, sizeof rank, "%d", r);
      setenv("STANDIN_FAULT", fault, 1);
      /* What fails by intent is not shown. */
      if (status != 0 && freopen("/dev/null", "w", stderr) == NULL) {
        _exit(3);
      }
      execl(path, path, body, rank, id.internal, (char *)NULL);
      _exit(2);
    }
  }
  for (int r = 0; r < 2; r++) {
    int ended = 0;
    EXPECT(waitpid(children[r], &ended, 0) == children[r]);
    EXPECT(WIFEXITED(ended) && WEXITSTATUS(ended) == status);
  }
}

static int run_process(const char *body, int number, const char *id) {
  struct rank rank = {.rank = number, .nranks = 2};
  rank.body = strcmp(body, "window") == 0 ? body_window : body_all_reduce;
  snprintf(rank.id.internal, sizeof rank.id.internal, "%s", id);
  run_rank(&rank);
  return 0;
}

static void run(const struct test *tests, const char *only) {
  for (; tests->name != NULL; tests++) {
    if (only == NULL || strcmp(only, tests->name) == 0) {
      standin_reset();
      tests->run();
      printf("%s: passed\n", tests->name);
      fflush(stdout);
    }
  }
}

int main(int argc, char **argv) {
  if (argc == 4) {
    return run_process(argv[1], atoi(argv[2]), argv[3]);
  }
  const char *only = argc < 2 ? NULL : argv[1];
  run(cuda_tests, only);
  run(comm_tests, only);
  run(type_tests, only);
  return 0;
}

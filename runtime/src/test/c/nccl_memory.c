/* Memory for communication: allocation, registration, windows and one-sided operations. */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULARITY ((size_t)2 << 20)

struct registration {
  struct registration *next;
  void *buffer;
  size_t size;
};

struct ncclWindow_vidmem {
  struct ncclWindow_vidmem *next;
  void *user;
  int nranks;
  size_t sizes[MAX_RANKS];
  /* Where this process sees the ranks' memory; mapped when it is another process'. */
  char *peers[MAX_RANKS];
  size_t mapped[MAX_RANKS];
  char *maps[MAX_RANKS];
};

#if STANDIN_NCCL_VERSION >= 21900
static ncclResult_t allocate(void **ptr, size_t size) {
  int device;
  CHECK(nn_cuda(standin_device(&device)));
  size = (size + GRANULARITY - 1) / GRANULARITY * GRANULARITY;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
  CUmemGenericAllocationHandle handle;
  CUdeviceptr address;
  int count;
  CHECK(nn_cuda(cuMemCreate(&handle, size, &prop, 0)));
  CHECK(nn_cuda(cuMemAddressReserve(&address, size, GRANULARITY, 0, 0)));
  CHECK(nn_cuda(cuMemMap(address, size, 0, handle, 0)));
  CHECK(nn_cuda(cuDeviceGetCount(&count)));
  for (int d = 0; d < count; d++) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, d},
        CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CHECK(nn_cuda(cuMemSetAccess(address, size, &access, 1)));
  }
  CHECK(nn_cuda(cuMemRelease(handle)));
  *ptr = (void *)(uintptr_t)address;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **ptr, size_t size) {
  ENTER_NOW(ncclMemAlloc, NULL);
  REQUIRE(ptr != NULL && size > 0, ncclInvalidArgument, "ncclMemAlloc : ptr is NULL or size 0");
  return allocate(ptr, size);
}
TWIN(ncclMemAlloc);

ncclResult_t ncclMemFree(void *ptr) {
  ENTER_NOW(ncclMemFree, NULL);
  if (ptr == NULL) {
    return ncclSuccess;
  }
  CUdeviceptr base;
  size_t size;
  int device;
  CHECK(nn_cuda(standin_device(&device)));
  CHECK(nn_cuda(cuMemGetAddressRange_v2(&base, &size, (CUdeviceptr)(uintptr_t)ptr)));
  REQUIRE(base == (CUdeviceptr)(uintptr_t)ptr, ncclInvalidArgument,
      "ncclMemFree : not the start of an allocation");
  CHECK(nn_cuda(cuMemUnmap(base, size)));
  return nn_cuda(cuMemAddressFree(base, size));
}
TWIN(ncclMemFree);

ncclResult_t ncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle) {
  ENTER_NOW(ncclCommRegister, comm);
  CHECK(nn_ready(comm, "ncclCommRegister"));
  REQUIRE(buff != NULL && size > 0 && handle != NULL, ncclInvalidArgument,
      "ncclCommRegister : buff or handle is NULL, or size 0");
  const char *local = getenv("NCCL_LOCAL_REGISTER");
  *handle = NULL;
  if (local == NULL || strcmp(local, "0") != 0) {
    struct registration *registration = malloc(sizeof *registration);
    *registration = (struct registration){comm->registrations, buff, size};
    comm->registrations = registration;
    *handle = registration;
    standin_count("registration", 1);
  }
  return ncclSuccess;
}
TWIN(ncclCommRegister);

ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
  ENTER_NOW(ncclCommDeregister, comm);
  CHECK(nn_check(comm, "ncclCommDeregister"));
  if (handle == NULL) {
    return ncclSuccess;
  }
  for (struct registration **at = &comm->registrations; *at != NULL; at = &(*at)->next) {
    if (*at == handle) {
      *at = (*at)->next;
      free(handle);
      standin_count("registration", -1);
      return ncclSuccess;
    }
  }
  return nn_fail(ncclInvalidUsage, "Deregister : unknown handle %p", handle);
}
TWIN(ncclCommDeregister);
#endif

static void free_window(ncclComm_t comm, struct ncclWindow_vidmem *window) {
  for (int r = 0; r < comm->nranks; r++) {
    if (window->maps[r] != NULL) {
      munmap(window->maps[r], window->mapped[r]);
    }
  }
  free(window);
  standin_count("window", -1);
}

void nn_windows_drop(ncclComm_t comm) {
  while (comm->windows != NULL) {
    struct ncclWindow_vidmem *window = comm->windows;
    comm->windows = window->next;
    free_window(comm, window);
  }
  while (comm->registrations != NULL) {
    struct registration *registration = comm->registrations;
    comm->registrations = registration->next;
    free(registration);
    standin_count("registration", -1);
  }
}

char *nn_window_part(ncclWindow_t window, int rank) {
  return window->peers[rank];
}

#if STANDIN_NCCL_VERSION >= 22700
/* What a rank tells the others about its memory. */
struct shown {
  int pid;
  int fd;
  size_t offset;
  size_t size;
  void *address;
};

static ncclResult_t map_peer(struct ncclWindow_vidmem *window, int rank,
    const struct shown *shown) {
  window->sizes[rank] = shown->size;
  if (shown->pid == (int)getpid()) {
    window->peers[rank] = shown->address;
    return ncclSuccess;
  }
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", shown->pid, shown->fd);
  int fd = open(path, O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0, ncclSystemError, "memory of process %d can not be opened", shown->pid);
  size_t before = shown->offset % GRANULARITY;
  window->mapped[rank] = before + shown->size;
  char *at = mmap(NULL, window->mapped[rank], PROT_READ | PROT_WRITE, MAP_SHARED, fd,
      (off_t)(shown->offset - before));
  close(fd);
  REQUIRE(at != MAP_FAILED, ncclSystemError, "memory of process %d can not be mapped", shown->pid);
  window->maps[rank] = at;
  window->peers[rank] = at + before;
  return ncclSuccess;
}

struct window_job {
  struct job job;
  void *buffer;
  size_t size;
  ncclWindow_t *out;
};

static ncclResult_t register_window(ncclComm_t comm, void *buffer, size_t size,
    ncclWindow_t *out) {
  struct shown mine = {.pid = (int)getpid(), .size = size, .address = buffer};
  struct shown all[MAX_RANKS];
  int device;
  size_t rest;
  bool known = standin_memory(buffer, &mine.fd, &mine.offset, &rest, &device) && size <= rest;
  mine.size = known ? size : 0;
  REQUIRE(nn_exchange(comm, &mine, sizeof mine, all), ncclInternalError, "aborted");
  const char *enabled = getenv("NCCL_WIN_ENABLE");
  for (int r = 0; r < comm->nranks; r++) {
    if (all[r].size == 0 || (enabled != NULL && strcmp(enabled, "0") == 0)) {
      /* Not supported is no error: there is no window then. */
      *out = NULL;
      return ncclSuccess;
    }
  }
  struct ncclWindow_vidmem *window = calloc(1, sizeof *window);
  standin_count("window", 1);
  window->user = buffer;
  window->nranks = comm->nranks;
  for (int r = 0; r < comm->nranks; r++) {
    ncclResult_t result = map_peer(window, r, &all[r]);
    if (result != ncclSuccess) {
      free_window(comm, window);
      return result;
    }
  }
  window->next = comm->windows;
  comm->windows = window;
  *out = window;
  return ncclSuccess;
}

static ncclResult_t run_window(struct job *job) {
  struct window_job *window = (struct window_job *)job;
  if (!nn_act(job->comm, job->action)) {
    return ncclInternalError;
  }
  return register_window(job->comm, window->buffer, window->size, window->out);
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
    int winFlags) {
  ENTER(ncclCommWindowRegister, comm);
  CHECK(nn_group_error(nn_ready(comm, "ncclCommWindowRegister")));
  REQUIRE(buff != NULL && size > 0 && win != NULL && winFlags >= 0 && winFlags <= 3,
      nn_group_error(ncclInvalidArgument),
      "ncclCommWindowRegister : buff or win is NULL, size 0, or flags %d wrong", winFlags);
  REQUIRE((uintptr_t)buff % NCCL_WIN_REQUIRED_ALIGNMENT == 0, nn_group_error(ncclInvalidArgument),
      "ncclCommWindowRegister : buff is not aligned to %d", NCCL_WIN_REQUIRED_ALIGNMENT);
  *win = NULL;
  struct window_job *window = malloc(sizeof *window);
  *window = (struct window_job){{.comm = comm, .owner = comm, .run = run_window,
      .action = action}, buff, size, win};
  return nn_group_error(nn_launch_job(&window->job));
}
TWIN(ncclCommWindowRegister);

static struct ncclWindow_vidmem **find(ncclComm_t comm, ncclWindow_t win) {
  struct ncclWindow_vidmem **at = &comm->windows;
  while (*at != NULL && *at != win) {
    at = &(*at)->next;
  }
  return at;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win) {
  ENTER_NOW(ncclCommWindowDeregister, comm);
  CHECK(nn_check(comm, "ncclCommWindowDeregister"));
  if (win == NULL) {
    return ncclSuccess;
  }
  struct ncclWindow_vidmem **at = find(comm, win);
  REQUIRE(*at != NULL, ncclInvalidArgument, "window %p is not of this communicator", (void *)win);
  *at = win->next;
  free_window(comm, win);
  return ncclSuccess;
}
TWIN(ncclCommWindowDeregister);
#endif

#if STANDIN_NCCL_VERSION >= 22902
ncclResult_t ncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr) {
  ENTER_NOW(ncclWinGetUserPtr, comm);
  CHECK(nn_check(comm, "ncclWinGetUserPtr"));
  REQUIRE(outUserPtr != NULL && *find(comm, win) != NULL, ncclInvalidArgument,
      "ncclWinGetUserPtr : window %p is not of this communicator", (void *)win);
  *outUserPtr = win->user;
  return ncclSuccess;
}
TWIN(ncclWinGetUserPtr);

static ncclResult_t peer_pointer(ncclWindow_t window, size_t offset, int rank, void **out) {
  REQUIRE(window != NULL && out != NULL, ncclInvalidArgument, "window or outPtr argument is NULL");
  REQUIRE(rank >= 0 && rank < window->nranks, ncclInvalidArgument,
      "rank %d is not within the ranks of the window", rank);
  *out = window->peers[rank] + offset;
  return ncclSuccess;
}

ncclResult_t ncclGetLsaDevicePointer(ncclWindow_t window, size_t offset, int lsaRank,
    void **outPtr) {
  ENTER_NOW(ncclGetLsaDevicePointer, NULL);
  return peer_pointer(window, offset, lsaRank, outPtr);
}
TWIN(ncclGetLsaDevicePointer);

ncclResult_t ncclGetPeerDevicePointer(ncclWindow_t window, size_t offset, int peer, void **outPtr) {
  ENTER_NOW(ncclGetPeerDevicePointer, NULL);
  return peer_pointer(window, offset, peer, outPtr);
}
TWIN(ncclGetPeerDevicePointer);

/* No NVLS: NULL is no error. */
ncclResult_t ncclGetLsaMultimemDevicePointer(ncclWindow_t window, size_t offset, void **outPtr) {
  ENTER_NOW(ncclGetLsaMultimemDevicePointer, NULL);
  CHECK(peer_pointer(window, offset, 0, outPtr));
  *outPtr = NULL;
  return ncclSuccess;
}
TWIN(ncclGetLsaMultimemDevicePointer);

ncclResult_t ncclGetMultimemDevicePointer(ncclWindow_t window, size_t offset,
    ncclMultimemHandle_t multimem, void **outPtr) {
  ENTER_NOW(ncclGetMultimemDevicePointer, NULL);
  REQUIRE(multimem.mcBasePtr != NULL, ncclInvalidArgument, "MCBasePtr needs to be valid.");
  CHECK(peer_pointer(window, offset, 0, outPtr));
  *outPtr = NULL;
  return ncclSuccess;
}
TWIN(ncclGetMultimemDevicePointer);

void nn_run_put(struct call *call) {
  ncclComm_t comm = call->comm;
  size_t bytes = call->count * nn_type_size(call->type);
  if (call->kind == PUT_SIGNAL && bytes > 0) {
    if (call->offset + bytes > call->window->sizes[call->peer]) {
      standin_break(comm->device, CUDA_ERROR_ILLEGAL_ADDRESS);
      return;
    }
    memcpy(call->window->peers[call->peer] + call->offset, call->send, bytes);
  }
  __atomic_add_fetch(&comm->segment->signals[comm->rank][call->peer], 1, __ATOMIC_ACQ_REL);
  nn_ring(&comm->segment->members[call->peer].doorbell);
}

bool nn_run_signals(struct call *call) {
  ncclComm_t comm = call->comm;
  for (int i = 0; i < call->waits; i++) {
    int peer = call->descs[i].peer;
    uint64_t wanted = comm->signals_used[peer] + (uint64_t)call->descs[i].opCnt;
    uint64_t *signals = &comm->segment->signals[peer][comm->rank];
    unsigned *doorbell = &comm->segment->members[comm->rank].doorbell;
    unsigned seen = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    while (__atomic_load_n(signals, __ATOMIC_ACQUIRE) < wanted) {
      if (nn_stopped(comm)) {
        return false;
      }
      nn_wait_word(doorbell, seen);
      seen = __atomic_load_n(doorbell, __ATOMIC_ACQUIRE);
    }
    comm->signals_used[peer] = wanted;
  }
  return true;
}
#endif

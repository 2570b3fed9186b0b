/*
 * How ranks find each other and wait for each other: POSIX shared memory with a name made of the
 * unique id, futexes in it. Waits end within milliseconds when the communicator is aborted.
 */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SLOT_START ((sizeof(struct segment) + 4095) & ~(size_t)4095)

void nn_random_key(char *key) {
  unsigned char bytes[12];
  if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) {
    abort();
  }
  for (size_t i = 0; i < sizeof bytes; i++) {
    sprintf(key + 2 * i, "%02x", bytes[i]);
  }
}

void nn_wait_word(unsigned *word, unsigned seen) {
  /* The time-out bounds how long an abort stays unseen. */
  struct timespec limit = {0, 10 * 1000 * 1000};
  syscall(SYS_futex, word, FUTEX_WAIT, seen, &limit, NULL, 0);
}

void nn_ring(unsigned *word) {
  __atomic_add_fetch(word, 1, __ATOMIC_ACQ_REL);
  syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool nn_stopped(ncclComm_t comm) {
  ncclComm_t parent = comm->parent;
  return __atomic_load_n(&comm->abort, __ATOMIC_ACQUIRE) != 0
      || (parent != NULL && __atomic_load_n(&parent->abort, __ATOMIC_ACQUIRE) != 0)
      || standin_broken(comm->device) != 0;
}

bool nn_barrier(ncclComm_t comm, struct barrier *barrier, uint64_t *count) {
  uint64_t round = ++*count;
  uint64_t all = round * (uint64_t)comm->nranks;
  if (__atomic_add_fetch(&barrier->arrivals, 1, __ATOMIC_ACQ_REL) == all) {
    nn_ring(&barrier->generation);
  }
  while (__atomic_load_n(&barrier->arrivals, __ATOMIC_ACQUIRE) < all) {
    unsigned seen = __atomic_load_n(&barrier->generation, __ATOMIC_ACQUIRE);
    if (nn_stopped(comm)) {
      return false;
    }
    if (__atomic_load_n(&barrier->arrivals, __ATOMIC_ACQUIRE) < all) {
      nn_wait_word(&barrier->generation, seen);
    }
  }
  return true;
}

char *nn_slot(ncclComm_t comm, unsigned parity, int rank) {
  return (char *)comm->segment + SLOT_START
      + CHUNK_BYTES * (parity * (size_t)comm->nranks + (size_t)rank);
}

struct channel *nn_channel(ncclComm_t comm, int from, int to) {
  char *start = nn_slot(comm, 2, 0);
  return (struct channel *)start + (size_t)from * (size_t)comm->nranks + (size_t)to;
}

static void *map_segment(ncclComm_t comm) {
  char name[64];
  snprintf(name, sizeof name, "/nccl-standin-%s", comm->key);
  int fd = shm_open(name, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (fd < 0) {
    return MAP_FAILED;
  }
  size_t n = (size_t)comm->nranks;
  comm->segment_bytes = SLOT_START + 2 * n * CHUNK_BYTES + n * n * sizeof(struct channel);
  void *at = MAP_FAILED;
  /* All ranks set the same size; new memory is zero, which is the state to start from. */
  if (ftruncate(fd, (off_t)comm->segment_bytes) == 0) {
    at = mmap(NULL, comm->segment_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  return at;
}

static void unlink_segment(ncclComm_t comm) {
  char name[64];
  snprintf(name, sizeof name, "/nccl-standin-%s", comm->key);
  shm_unlink(name);
}

/* NCCL_HOSTID makes processes of one machine look as if they were on several. */
static uint64_t host_hash(void) {
  const char *id = getenv("NCCL_HOSTID");
  uint64_t hash = 5381;
  for (; id != NULL && *id != 0; id++) {
    hash = hash * 33 + (unsigned char)*id;
  }
  return hash;
}

static ncclResult_t check_devices(ncclComm_t comm) {
  struct member *members = comm->segment->members;
  const char *multi = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  bool allowed = STANDIN_NCCL_VERSION >= 23003 && multi != NULL && strcmp(multi, "1") == 0;
  for (int a = 0; a < comm->nranks; a++) {
    for (int b = a + 1; b < comm->nranks && !allowed; b++) {
      REQUIRE(members[a].host != members[b].host || members[a].device != members[b].device,
          ncclInvalidUsage,
          "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", a, b,
          (0x10 + members[a].device) << 12);
    }
  }
  return ncclSuccess;
}

ncclResult_t nn_join(ncclComm_t comm) {
  REQUIRE(comm->nranks <= MAX_RANKS, ncclInternalError, "the stand-in has at most %d ranks",
      MAX_RANKS);
  void *at = map_segment(comm);
  REQUIRE(at != MAP_FAILED, ncclSystemError,
      "Error while creating shared memory segment /dev/shm/nccl-standin-%s : %s", comm->key,
      strerror(errno));
  struct segment *segment = at;
  /* An abort by another thread looks for it at any time. */
  __atomic_store_n(&comm->segment, segment, __ATOMIC_RELEASE);
  int none = 0;
  if (!__atomic_compare_exchange_n(&segment->nranks, &none, comm->nranks, false,
          __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
    REQUIRE(none == comm->nranks, ncclInternalError,
        "Bootstrap Root : mismatch in rank count from procs %d : %d", none, comm->nranks);
  }
  struct member *member = &segment->members[comm->rank];
  member->pid = (int)getpid();
  member->device = comm->device;
  member->host = host_hash();
  unsigned total = (unsigned)comm->nranks;
  /* A rank that is there twice does not count twice: the missing one is waited for, as in NCCL. */
  if (__atomic_exchange_n(&member->joined, 1, __ATOMIC_ACQ_REL) == 0) {
    if (__atomic_add_fetch(&segment->arrived, 1, __ATOMIC_ACQ_REL) == total) {
      unlink_segment(comm);
    }
    syscall(SYS_futex, &segment->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
  unsigned arrived;
  while ((arrived = __atomic_load_n(&segment->arrived, __ATOMIC_ACQUIRE)) < total) {
    if (nn_stopped(comm)) {
      unlink_segment(comm);
      return nn_fail(ncclInternalError, "initialisation was aborted");
    }
    nn_wait_word(&segment->arrived, arrived);
  }
  return check_devices(comm);
}

void nn_leave(ncclComm_t comm) {
  struct segment *segment = __atomic_exchange_n(&comm->segment, NULL, __ATOMIC_ACQ_REL);
  /* Kernels that wait for a rank which never comes look at it for a while. */
  if (segment != NULL && comm->device_words == 0) {
    munmap(segment, comm->segment_bytes);
  }
}

void nn_wake_all(ncclComm_t comm) {
  struct segment *segment = __atomic_load_n(&comm->segment, __ATOMIC_ACQUIRE);
  if (segment != NULL) {
    nn_ring(&segment->data.generation);
    nn_ring(&segment->control.generation);
    nn_ring(&segment->members[comm->rank].doorbell);
    syscall(SYS_futex, &segment->arrived, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
  }
}

bool nn_exchange(ncclComm_t comm, const void *mine, size_t size, void *all) {
  unsigned parity = comm->controls & 1;
  struct member *members = comm->segment->members;
  memcpy(members[comm->rank].note[parity], mine, size);
  if (!nn_barrier(comm, &comm->segment->control, &comm->controls)) {
    return false;
  }
  for (int r = 0; r < comm->nranks; r++) {
    memcpy((char *)all + (size_t)r * size, members[r].note[parity], size);
  }
  return true;
}

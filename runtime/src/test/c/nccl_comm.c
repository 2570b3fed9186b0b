/* Making communicators. */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

ncclComm_t nn_comm_create(int nranks, int rank, int device) {
  ncclComm_t comm = calloc(1, sizeof *comm);
  comm->magic = COMM_MAGIC;
  comm->refs = 1;
  comm->rank = rank;
  comm->nranks = nranks;
  comm->device = device;
  comm->order = standin_order_create();
  cuDevicePrimaryCtxRetain(&comm->ctx, device);
  standin_count("comm", 1);
  return comm;
}

bool nn_comm_retain(ncclComm_t comm) {
  int refs = __atomic_load_n(&comm->refs, __ATOMIC_ACQUIRE);
  while (refs > 0) {
    if (__atomic_compare_exchange_n(&comm->refs, &refs, refs + 1, false, __ATOMIC_ACQ_REL,
            __ATOMIC_ACQUIRE)) {
      return true;
    }
  }
  return false;
}

/*
 * What graphs hold may outlive a communicator; its structure stays, so that misuse is found out. A
 * graph's end calls this with the lock of libcuda held: nothing of that may be called from here.
 */
void nn_comm_release(ncclComm_t comm) {
  if (__atomic_sub_fetch(&comm->refs, 1, __ATOMIC_ACQ_REL) == 0) {
    nn_leave(comm);
  }
}

void nn_comm_discard(ncclComm_t comm) {
  /* Once: an abort may meet the thread whose blocking initialisation it ended. */
  uint64_t alive = COMM_MAGIC;
  if (!__atomic_compare_exchange_n(&comm->magic, &alive, DEAD_MAGIC, false, __ATOMIC_ACQ_REL,
          __ATOMIC_ACQUIRE)) {
    return;
  }
  if (comm->segment != NULL && comm->async != ncclInProgress) {
    nn_devices_drop(comm);
    nn_windows_drop(comm);
  }
  if (comm->persistent > 0) {
    standin_book(comm->device, -(long)comm->persistent);
    comm->persistent = 0;
  }
  standin_order_destroy(comm->order);
  cuDevicePrimaryCtxRelease_v2(comm->device);
  standin_count("comm", -1);
  nn_comm_release(comm);
}

/* Multicast buffers, where the test has some; NCCL's own variable switches them off. */
static long nn_nvls_bytes(void) {
  const char *bytes = getenv("STANDIN_NCCL_NVLS");
  const char *enable = getenv("NCCL_NVLS_ENABLE");
  bool off = enable != NULL && strcmp(enable, "0") == 0;
  return bytes == NULL || off ? 0 : strtol(bytes, NULL, 0);
}

/* As in NCCL from 2.24 on: a name that there is not is an error. */
static ncclResult_t nn_known(const char *variable, const char *first, const char *second) {
  const char *value = getenv(variable);
  if (value == NULL || strcasecmp(value, first) == 0 || strcasecmp(value, second) == 0) {
    return ncclSuccess;
  }
  return nn_fail(ncclInvalidUsage, "%s=%s names nothing that there is", variable, value);
}

static ncclResult_t join(ncclComm_t comm) {
  ncclResult_t result = nn_known("NCCL_ALGO", "ring", "tree");
  result = result == ncclSuccess ? nn_known("NCCL_PROTO", "ll", "simple") : result;
  result = result == ncclSuccess ? nn_join(comm) : result;
  if (result == ncclSuccess) {
    long bytes = (long)(PERSISTENT_BYTES + SCRATCH_BYTES) + nn_nvls_bytes();
    result = nn_cuda(standin_book(comm->device, bytes));
    comm->persistent = result == ncclSuccess ? bytes : 0;
  }
  return result;
}

static ncclResult_t run_init(struct job *job) {
  if (!nn_act(job->comm, job->action)) {
    ncclResult_t state = (ncclResult_t)__atomic_load_n(&job->comm->async, __ATOMIC_ACQUIRE);
    return state != ncclInProgress && state != ncclSuccess ? state : ncclInternalError;
  }
  return join(job->comm);
}

static ncclResult_t launch(struct job values) {
  struct job *job = malloc(sizeof *job);
  *job = values;
  return nn_launch_job(job);
}

static ncclResult_t init(ncclComm_t *out, int nranks, const ncclUniqueId *id, int rank,
    const ncclConfig_t *config, int device, struct standin_action action) {
  int current;
  CHECK(nn_cuda(standin_device(&current)));
  REQUIRE(out != NULL, ncclInvalidArgument, "CommInitRank : newcomm argument is NULL");
  __atomic_store_n(out, NULL, __ATOMIC_RELEASE);
  REQUIRE(nranks >= 1 && rank >= 0 && rank < nranks, ncclInvalidArgument,
      "Invalid rank requested : %d/%d", rank, nranks);
  ncclConfig_t read;
  CHECK(nn_config(&read, config));
  ncclComm_t comm = nn_comm_create(nranks, rank, device < 0 ? current : device);
  comm->config = read;
  snprintf(comm->key, sizeof comm->key, "%.24s", id->internal);
  /* Another thread may look for it there, to abort what follows. */
  __atomic_store_n(out, comm, __ATOMIC_RELEASE);
  static struct standin_site launching = {"launch of an init", NULL, 0, 0};
  struct standin_action late = standin_call(&launching, rank);
  if (late.kind == STANDIN_DELAY) {
    /* As when NCCL has no memory for what follows: what was given is freed, and then taken back. */
    standin_sleep(late.value);
    nn_take_back(comm, out);
    return nn_fail(ncclSystemError, "the initialisation cannot be launched");
  }
  return launch((struct job){.comm = comm, .owner = comm, .run = run_init, .action = action,
      .out = out});
}

/* An action that is due on a call for a rank which has no communicator yet. */
#define ENTER_RANK(function, rank)                                                                  \
  static struct standin_site site_ = {#function, NULL, 0, 0};                                       \
  struct standin_action action = standin_call(&site_, rank);                                        \
  if (action.kind == STANDIN_ERROR) {                                                               \
    return nn_group_error(nn_fail((ncclResult_t)action.value, #function ": injected error %ld",     \
        action.value));                                                                             \
  }

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank) {
  ENTER_RANK(ncclCommInitRank, rank);
  return nn_group_error(init(comm, nranks, &commId, rank, NULL, -1, action));
}
TWIN(ncclCommInitRank);

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks, ncclUniqueId commId, int rank,
    ncclConfig_t *config) {
  ENTER_RANK(ncclCommInitRankConfig, rank);
  return nn_group_error(init(comm, nranks, &commId, rank, config, -1, action));
}
TWIN(ncclCommInitRankConfig);

#if STANDIN_NCCL_VERSION >= 22300
ncclResult_t ncclCommInitRankScalable(ncclComm_t *newcomm, int nranks, int myrank, int nId,
    ncclUniqueId *commIds, ncclConfig_t *config) {
  ENTER_RANK(ncclCommInitRankScalable, myrank);
  REQUIRE(nId > 0 && nId <= nranks && commIds != NULL, nn_group_error(ncclInvalidArgument),
      "improper usage of ncclCommInitRank: nId = %d, nranks=%d", nId, nranks);
  /* One id is enough to meet; all ranks have the same first one. */
  return nn_group_error(init(newcomm, nranks, commIds, myrank, config, -1, action));
}
TWIN(ncclCommInitRankScalable);
#endif

static ncclResult_t init_all(ncclComm_t *comms, int ndev, const int *devlist) {
  int current;
  int count;
  ncclUniqueId id;
  CHECK(nn_cuda(standin_device(&current)));
  REQUIRE(comms != NULL && ndev >= 0, ncclInvalidArgument,
      "CommInitAll : comms argument is NULL or invalid device count %d", ndev);
  CHECK(nn_cuda(cuDeviceGetCount(&count)));
  for (int i = 0; i < ndev; i++) {
    int device = devlist == NULL ? i : devlist[i];
    REQUIRE(device >= 0 && device < count, ncclInvalidArgument, "Invalid device %d", device);
  }
  CHECK(ncclGetUniqueId(&id));
  CHECK(ncclGroupStart());
  for (int i = 0; i < ndev; i++) {
    struct standin_action none = {STANDIN_NONE, 0};
    ncclConfig_t config;
    nn_config(&config, NULL);
    config.blocking = 1;
    nn_group_error(
        init(&comms[i], ndev, &id, i, &config, devlist == NULL ? i : devlist[i], none));
  }
  return ncclGroupEnd();
}

ncclResult_t ncclCommInitAll(ncclComm_t *comm, int ndev, const int *devlist) {
  ENTER_NOW(ncclCommInitAll, NULL);
  return init_all(comm, ndev, devlist);
}
TWIN(ncclCommInitAll);

/* Children. */

struct choice {
  int color;
  int key;
};

/* All ranks derive the same name for the child. */
static void child_key(ncclComm_t child, ncclComm_t parent, const char *how, unsigned count,
    int number) {
  uint64_t hash = 14695981039346656037u;
  char text[128];
  snprintf(text, sizeof text, "%s %s %u %d", parent->key, how, count, number);
  for (const char *c = text; *c != 0; c++) {
    hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  }
  snprintf(child->key, sizeof child->key, "%.8s%016llx", parent->key, (unsigned long long)hash);
}

static ncclResult_t act_child(struct job *job) {
  if (!nn_act(job->owner, job->action)) {
    ncclResult_t state = (ncclResult_t)__atomic_load_n(&job->owner->async, __ATOMIC_ACQUIRE);
    return state != ncclInProgress && state != ncclSuccess ? state : ncclInternalError;
  }
  return ncclSuccess;
}

static ncclResult_t join_child(struct job *job) {
  ncclComm_t child = job->comm;
  child->parent = job->owner;
  ncclResult_t result = join(child);
  child->parent = NULL;
  if (result == ncclSuccess) {
    /* The pointer is given when the child is complete. */
    *job->out = child;
  }
  return result;
}

static ncclResult_t run_split(struct job *job) {
  ncclComm_t parent = job->owner;
  struct choice choices[MAX_RANKS];
  struct choice mine = {job->color, job->key};
  CHECK(act_child(job));
  REQUIRE(nn_exchange(parent, &mine, sizeof mine, choices), ncclInternalError,
      "split was aborted");
  parent->children++;
  if (job->color == NCCL_SPLIT_NOCOLOR) {
    return ncclSuccess;
  }
  ncclComm_t child = job->comm;
  child->nranks = 0;
  child->rank = 0;
  for (int r = 0; r < parent->nranks; r++) {
    if (choices[r].color == job->color) {
      child->nranks++;
      child->rank += choices[r].key < job->key || (choices[r].key == job->key && r < parent->rank);
    }
  }
  child_key(child, parent, "split", parent->children, job->color);
  return join_child(job);
}

static ncclResult_t make_child(ncclComm_t parent, ncclComm_t *newcomm, ncclConfig_t *config,
    ncclComm_t *child) {
  REQUIRE(newcomm != NULL, ncclInvalidArgument, "newcomm argument is NULL");
  *newcomm = NULL;
  CHECK(nn_ready(parent, "ncclCommSplit"));
  REQUIRE(!parent->finalized, ncclInvalidUsage, "communicator is finalized");
  ncclConfig_t read = parent->config;
  if (config != NULL) {
    CHECK(nn_config(&read, config));
  }
  *child = nn_comm_create(0, 0, parent->device);
  (*child)->config = read;
  return ncclSuccess;
}

#if STANDIN_NCCL_VERSION >= 21800
static ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
    ncclConfig_t *config, struct standin_action action) {
  CHECK(nn_check(comm, "ncclCommSplit"));
  REQUIRE(color >= 0 || color == NCCL_SPLIT_NOCOLOR, ncclInvalidArgument,
      "ncclCommSplit : invalid color %d", color);
  ncclComm_t child = comm;
  if (color != NCCL_SPLIT_NOCOLOR) {
    CHECK(make_child(comm, newcomm, config, &child));
  } else {
    CHECK(nn_ready(comm, "ncclCommSplit"));
    *newcomm = NULL;
  }
  return launch((struct job){.comm = child, .owner = comm, .run = run_split, .action = action,
      .out = child == comm ? NULL : newcomm, .color = color, .key = key});
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
    ncclConfig_t *config) {
  ENTER_RANK(ncclCommSplit, nn_rank_of(comm));
  return nn_group_error(split(comm, color, key, newcomm, config, action));
}
TWIN(ncclCommSplit);
#endif

#if STANDIN_NCCL_VERSION >= 22700
static ncclResult_t run_child(struct job *job) {
  CHECK(act_child(job));
  return join_child(job);
}

static ncclResult_t shrink(ncclComm_t comm, const int *excluded, int count, ncclComm_t *newcomm,
    ncclConfig_t *config, int flags, struct standin_action action) {
  CHECK(nn_check(comm, "ncclCommShrink"));
  REQUIRE(excluded != NULL && count > 0 && count < comm->nranks, ncclInvalidArgument,
      "ncclCommShrink : excludeRanksList is NULL or its count %d is invalid", count);
  REQUIRE(flags == NCCL_SHRINK_DEFAULT || flags == NCCL_SHRINK_ABORT, ncclInvalidArgument,
      "ncclCommShrink : invalid flags %d", flags);
  int rank = comm->rank;
  int sum = 0;
  for (int i = 0; i < count; i++) {
    REQUIRE(excluded[i] >= 0 && excluded[i] < comm->nranks && excluded[i] != comm->rank,
        ncclInvalidArgument, "ncclCommShrink : invalid rank %d in excludeRanksList", excluded[i]);
    rank -= excluded[i] < comm->rank;
    sum += 1 << (excluded[i] % 24);
  }
  if (flags == NCCL_SHRINK_ABORT) {
    nn_quiesce(comm);
    __atomic_store_n(&comm->async, ncclSuccess, __ATOMIC_RELEASE);
  }
  ncclComm_t child;
  CHECK(make_child(comm, newcomm, config, &child));
  child->nranks = comm->nranks - count;
  child->rank = rank;
  /* Only survivors count these. */
  child_key(child, comm, "shrink", comm->shrinks++, sum);
  return launch((struct job){.comm = child, .owner = comm, .run = run_child, .action = action,
      .out = newcomm});
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int *excludeRanksList, int excludeRanksCount,
    ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags) {
  ENTER_RANK(ncclCommShrink, nn_rank_of(comm));
  return nn_group_error(shrink(comm, excludeRanksList, excludeRanksCount, newcomm, config,
      shrinkFlags, action));
}
TWIN(ncclCommShrink);
#endif

#if STANDIN_NCCL_VERSION >= 22902
/* The id of a grow follows from the communicator, so that ranks without it find the others, too. */
static void grow_key(ncclComm_t comm, char *key) {
  struct ncclComm scratch;
  child_key(&scratch, comm, "grow", comm->grows, 0);
  memcpy(key, scratch.key, 24);
}

ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId *uniqueId) {
  ENTER_NOW(ncclCommGetUniqueId, comm);
  CHECK(nn_ready(comm, "ncclCommGetUniqueId"));
  REQUIRE(uniqueId != NULL, ncclInvalidArgument, "GetUniqueId : out argument is NULL");
  REQUIRE(!comm->id_given, ncclInvalidUsage, "a previous unique id was not used yet");
  memset(uniqueId, 0, sizeof *uniqueId);
  grow_key(comm, uniqueId->internal);
  comm->id_given = true;
  return ncclSuccess;
}
TWIN(ncclCommGetUniqueId);

static ncclResult_t grow(ncclComm_t comm, int nranks, const ncclUniqueId *id, int rank,
    ncclComm_t *newcomm, ncclConfig_t *config, struct standin_action action) {
  if (comm == NULL) {
    REQUIRE(id != NULL, ncclInvalidArgument, "ncclCommGrow : uniqueId argument is NULL");
    return init(newcomm, nranks, id, rank, config, -1, action);
  }
  REQUIRE(rank == -1 && nranks > comm->nranks, ncclInvalidArgument,
      "ncclCommGrow : invalid rank %d or size %d of an existing communicator", rank, nranks);
  ncclComm_t child;
  CHECK(make_child(comm, newcomm, config, &child));
  child->nranks = nranks;
  child->rank = comm->rank;
  grow_key(comm, child->key);
  comm->grows++;
  comm->id_given = false;
  return launch((struct job){.comm = child, .owner = comm, .run = run_child, .action = action,
      .out = newcomm});
}

ncclResult_t ncclCommGrow(ncclComm_t comm, int nRanks, const ncclUniqueId *uniqueId, int rank,
    ncclComm_t *newcomm, ncclConfig_t *config) {
  ENTER_RANK(ncclCommGrow, comm == NULL ? rank : nn_rank_of(comm));
  return nn_group_error(grow(comm, nRanks, uniqueId, rank, newcomm, config, action));
}
TWIN(ncclCommGrow);
#endif

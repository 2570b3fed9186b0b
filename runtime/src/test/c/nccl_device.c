/* Device communicators: their structure, and the memory by which the twins of kernels meet. */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#if STANDIN_NCCL_VERSION >= 22902

/* sizeof(ncclDevCommRequirements_t) of the release. */
#define LIBRARY_BYTES                                                                               \
  (STANDIN_NCCL_VERSION >= 23000 ? 96u : STANDIN_NCCL_VERSION >= 22905 ? 88u : 72u)

struct device_communicator {
  struct device_communicator *next;
  char *words;
};

struct device_job {
  struct job job;
  ncclDevCommRequirements_t reqs;
  ncclDevComm_t *out;
};

/* Before 2.30, structures had neither magic nor version, and others of the network's fields. */
static void write_old(void *out, const ncclDevComm_t *full, unsigned version) {
  size_t common = offsetof(ncclDevComm_t, ginConnectionCount) - offsetof(ncclDevComm_t, rank);
  memset(out, 0, version < 22905 ? 200 : 224);
  memcpy(out, &full->rank, common);
}

static ncclResult_t create(ncclComm_t comm, const ncclDevCommRequirements_t *reqs,
    ncclDevComm_t *out) {
  int all[MAX_RANKS];
  REQUIRE(nn_exchange(comm, &reqs->lsaBarrierCount, sizeof(int), all), ncclInternalError,
      "aborted");
  unsigned first = comm->device_words;
  REQUIRE(first + 1 + (unsigned)comm->nranks <= DEVICE_WORDS, ncclSystemError,
      "the stand-in has no room for more device communicators");
  comm->device_words += 1 + (unsigned)comm->nranks;
  struct device_communicator *device = malloc(sizeof *device);
  *device = (struct device_communicator){comm->devices, (char *)&comm->segment->device[first]};
  comm->devices = device;
  standin_count("devcomm", 1);
  ncclDevComm_t full = {.magic = NCCL_API_MAGIC,
      .version = reqs->version,
      .rank = comm->rank,
      .nRanks = comm->nranks,
      .lsaRank = comm->rank,
      .lsaSize = comm->nranks};
  full.resourceWindow_inlined.lsaFlatBase = device->words;
  full.lsaBarrier.nBarriers = reqs->lsaBarrierCount;
  if (reqs->version < 23000) {
    write_old(out, &full, reqs->version);
  } else {
    *out = full;
  }
  return ncclSuccess;
}

static ncclResult_t run_create(struct job *job) {
  struct device_job *device = (struct device_job *)job;
  if (!nn_act(job->comm, job->action)) {
    return ncclInternalError;
  }
  return create(job->comm, &device->reqs, device->out);
}

static ncclResult_t check_requirements(const ncclDevCommRequirements_t *reqs) {
  REQUIRE(reqs->magic == NCCL_API_MAGIC, ncclInvalidUsage,
      "Cannot create device communicator: ncclDevCommRequirements_t argument must be initialized "
      "via NCCL_DEV_COMM_REQUIREMENTS_INITIALIZER");
  REQUIRE(reqs->version <= STANDIN_NCCL_VERSION, ncclInvalidUsage,
      "NCCL library is too old. This application was compiled with NCCL version %u", reqs->version);
  size_t expected = reqs->version < 22905 ? 72 : reqs->version < 23000 ? 88 : 96;
  REQUIRE(reqs->version >= 22902 && reqs->size == expected, ncclInvalidUsage,
      "NCCL library is not backwards compatible: version %u, %zu bytes", reqs->version, reqs->size);
  REQUIRE(!reqs->lsaMultimem, ncclInvalidUsage,
      "Multimem pointer requested but system does not support multimem.");
  REQUIRE(reqs->size < 88 || reqs->ginConnectionType == 0, ncclInvalidArgument,
      "User requested GIN but not all ranks in the communicator support GIN");
  REQUIRE(reqs->barrierCount == 0 && reqs->ginSignalCount == 0, ncclInvalidArgument,
      "User requested GIN resources but did not request GIN to be enabled!");
  return ncclSuccess;
}

ncclResult_t ncclDevCommCreate(ncclComm_t comm, const ncclDevCommRequirements_t *reqs,
    ncclDevComm_t *outDevComm) {
  ENTER(ncclDevCommCreate, comm);
  CHECK(nn_group_error(nn_ready(comm, "ncclDevCommCreate")));
  REQUIRE(reqs != NULL && outDevComm != NULL, nn_group_error(ncclInvalidArgument),
      "ncclDevCommCreate : reqs or outDevComm is NULL");
  CHECK(nn_group_error(check_requirements(reqs)));
  struct device_job *device = malloc(sizeof *device);
  *device = (struct device_job){.job = {.comm = comm, .owner = comm, .run = run_create,
                                    .action = action},
      .out = outDevComm};
  memcpy(&device->reqs, reqs, reqs->size < LIBRARY_BYTES ? reqs->size : LIBRARY_BYTES);
  return nn_group_error(nn_launch_job(&device->job));
}
TWIN(ncclDevCommCreate);

ncclResult_t ncclDevCommDestroy(ncclComm_t comm, const ncclDevComm_t *devComm) {
  ENTER_NOW(ncclDevCommDestroy, comm);
  CHECK(nn_check(comm, "ncclDevCommDestroy"));
  REQUIRE(devComm != NULL, ncclInvalidArgument, "ncclDevCommDestroy : devComm is NULL");
  size_t offset = offsetof(ncclDevComm_t, resourceWindow_inlined.lsaFlatBase);
  offset -= devComm->magic == NCCL_API_MAGIC ? 0 : offsetof(ncclDevComm_t, rank);
  char *words;
  memcpy(&words, (const char *)devComm + offset, sizeof words);
  for (struct device_communicator **at = &comm->devices; *at != NULL; at = &(*at)->next) {
    if ((*at)->words == words) {
      struct device_communicator *device = *at;
      *at = device->next;
      free(device);
      standin_count("devcomm", -1);
      return ncclSuccess;
    }
  }
  return nn_fail(ncclInvalidArgument, "the device communicator is not of this communicator");
}
TWIN(ncclDevCommDestroy);

void nn_devices_drop(ncclComm_t comm) {
  while (comm->devices != NULL) {
    struct device_communicator *device = comm->devices;
    comm->devices = device->next;
    free(device);
    standin_count("devcomm", -1);
  }
}

#else
void nn_devices_drop(ncclComm_t comm) {
  (void)comm;
}
#endif

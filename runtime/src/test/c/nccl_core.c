/* Version, errors, ids, states: what all functions need. */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One buffer for the process, as NCCL has it. */
static char last_error[1024];
static pthread_mutex_t error_lock = PTHREAD_MUTEX_INITIALIZER;

ncclResult_t nn_fail(ncclResult_t result, const char *format, ...) {
  char text[sizeof last_error];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  pthread_mutex_lock(&error_lock);
  memcpy(last_error, text, sizeof text);
  pthread_mutex_unlock(&error_lock);
  const char *debug = getenv("NCCL_DEBUG");
  if (debug != NULL && *debug != 0) {
    fprintf(stderr, "standin NCCL WARN %s\n", text);
  }
  return result;
}

bool nn_alive(ncclComm_t comm) {
  return __atomic_load_n(&comm->magic, __ATOMIC_ACQUIRE) == COMM_MAGIC;
}

int nn_rank_of(ncclComm_t comm) {
  return comm != NULL && nn_alive(comm) ? comm->rank : -1;
}

ncclResult_t nn_cuda(CUresult result) {
  if (result != CUDA_SUCCESS) {
    const char *text = NULL;
    cuGetErrorString(result, &text);
    return nn_fail(ncclUnhandledCudaError, "Cuda failure %d '%s'", (int)result,
        text == NULL ? "unknown" : text);
  }
  return ncclSuccess;
}

ncclResult_t nn_check(ncclComm_t comm, const char *function) {
  REQUIRE(comm != NULL, ncclInvalidArgument, "%s : comm argument is NULL", function);
  REQUIRE(nn_alive(comm), ncclInvalidArgument, "Error: corrupted comm object detected");
  return ncclSuccess;
}

ncclResult_t nn_ready(ncclComm_t comm, const char *function) {
  CHECK(nn_check(comm, function));
  ncclResult_t state = (ncclResult_t)__atomic_load_n(&comm->async, __ATOMIC_ACQUIRE);
  REQUIRE(state != ncclInProgress, ncclInvalidArgument,
      "Attempt to use communicator before the previous operation returned ncclSuccess");
  return state;
}

bool nn_act(ncclComm_t comm, struct standin_action action) {
  switch (action.kind) {
    case STANDIN_DELAY:
      for (long left = action.value; left > 0; left -= 5) {
        if (comm != NULL && nn_stopped(comm)) {
          return false;
        }
        standin_sleep(left < 5 ? left : 5);
      }
      return true;
    case STANDIN_STICKY:
      if (comm != NULL) {
        standin_break(comm->device, (int)action.value);
      }
      return comm == NULL;
    case STANDIN_ASYNC:
      if (comm != NULL) {
        nn_fail((ncclResult_t)action.value, "injected asynchronous error %ld", action.value);
        __atomic_store_n(&comm->async, (int)action.value, __ATOMIC_RELEASE);
      }
      break;
    case STANDIN_HANG:
      break;
    default:
      return true;
  }
  if (comm == NULL) {
    standin_hang();
    return true;
  }
  while (!nn_stopped(comm)) {
    standin_sleep(5);
  }
  return false;
}

ncclResult_t ncclGetVersion(int *version) {
  ENTER_NOW(ncclGetVersion, NULL);
  REQUIRE(version != NULL, ncclInvalidArgument, "GetVersion : version argument is NULL");
  *version = STANDIN_NCCL_VERSION;
  return ncclSuccess;
}
TWIN(ncclGetVersion);

ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
  ENTER_NOW(ncclGetUniqueId, NULL);
  REQUIRE(uniqueId != NULL, ncclInvalidArgument, "GetUniqueId : out argument is NULL");
  memset(uniqueId, 0, sizeof *uniqueId);
  nn_random_key(uniqueId->internal);
  return ncclSuccess;
}
TWIN(ncclGetUniqueId);

const char *ncclGetErrorString(ncclResult_t result) {
  switch ((int)result) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
TWIN(ncclGetErrorString);

const char *ncclGetLastError(ncclComm_t comm) {
  (void)comm;
  return last_error;
}
TWIN(ncclGetLastError);

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
  ENTER_NOW(ncclCommGetAsyncError, comm);
  CHECK(nn_check(comm, "ncclGetAsyncError"));
  REQUIRE(asyncError != NULL, ncclInvalidArgument,
      "ncclGetAsyncError : asyncError argument is NULL");
  *asyncError = (ncclResult_t)__atomic_load_n(&comm->async, __ATOMIC_ACQUIRE);
  return ncclSuccess;
}
TWIN(ncclCommGetAsyncError);

ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
  ENTER_NOW(ncclCommCount, comm);
  REQUIRE(count != NULL, ncclInvalidArgument, "CommCount : count argument is NULL");
  CHECK(nn_ready(comm, "CommCount"));
  *count = comm->nranks;
  return ncclSuccess;
}
TWIN(ncclCommCount);

ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
  ENTER_NOW(ncclCommCuDevice, comm);
  REQUIRE(device != NULL, ncclInvalidArgument, "CommCuDevice : device argument is NULL");
  CHECK(nn_ready(comm, "CommCuDevice"));
  *device = comm->device;
  return ncclSuccess;
}
TWIN(ncclCommCuDevice);

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
  ENTER_NOW(ncclCommUserRank, comm);
  REQUIRE(rank != NULL, ncclInvalidArgument, "CommUserRank : rank argument is NULL");
  CHECK(nn_ready(comm, "CommUserRank"));
  *rank = comm->rank;
  return ncclSuccess;
}
TWIN(ncclCommUserRank);

#if STANDIN_NCCL_VERSION >= 22907
ncclResult_t ncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value) {
  ENTER_NOW(ncclCommMemStats, comm);
  CHECK(nn_ready(comm, "CommMemStats"));
  REQUIRE(value != NULL, ncclInvalidArgument, "CommMemStats : value argument is NULL");
  uint64_t scratch = comm->suspended ? 0 : SCRATCH_BYTES;
  switch ((int)stat) {
    case ncclStatGpuMemSuspend:
      *value = scratch;
      return ncclSuccess;
    case ncclStatGpuMemSuspended:
      *value = comm->suspended;
      return ncclSuccess;
    case ncclStatGpuMemPersist:
      *value = PERSISTENT_BYTES;
      return ncclSuccess;
    case ncclStatGpuMemTotal:
      *value = PERSISTENT_BYTES + scratch;
      return ncclSuccess;
    default:
      return nn_fail(ncclInvalidArgument, "invalid memory statistic %d", (int)stat);
  }
}
TWIN(ncclCommMemStats);
#endif

#if STANDIN_NCCL_VERSION >= 22902
ncclResult_t ncclCommQueryProperties(ncclComm_t comm, struct ncclCommProperties *props) {
  ENTER_NOW(ncclCommQueryProperties, comm);
  CHECK(nn_ready(comm, "CommQueryProperties"));
  REQUIRE(props != NULL && props->magic == NCCL_API_MAGIC, ncclInvalidArgument,
      "ncclCommProperties argument not initialized via NCCL_COMM_PROPERTIES_INITIALIZER");
  props->rank = comm->rank;
  props->nRanks = comm->nranks;
  props->cudaDev = comm->device;
  props->nvmlDev = comm->device;
  const char *windows = getenv("NCCL_WIN_ENABLE");
  props->deviceApiSupport = windows == NULL || strcmp(windows, "0") != 0;
  props->multimemSupport = false;
  props->ginType = 0;
  props->nLsaTeams = 1;
  props->hostRmaSupport = true;
  props->railedGinType = 0;
  return ncclSuccess;
}
TWIN(ncclCommQueryProperties);
#endif

/* Ends of communicators: finalize, destroy, abort, revoke; and suspending them. */
#define _GNU_SOURCE
#include "nccl_internal.h"

static bool busy(ncclComm_t comm) {
  return __atomic_load_n(&comm->running, __ATOMIC_ACQUIRE) > 0;
}

static void stop(ncclComm_t comm) {
  __atomic_add_fetch(&comm->epoch, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&comm->abort, 1, __ATOMIC_RELEASE);
  nn_wake_all(comm);
  while (busy(comm)) {
    standin_sleep(1);
  }
}

static void wait_for_jobs(ncclComm_t comm) {
  while (__atomic_load_n(&comm->jobs, __ATOMIC_ACQUIRE) > 0) {
    standin_sleep(1);
  }
}

void nn_quiesce(ncclComm_t comm) {
  stop(comm);
  /* What a thread was about to enqueue must not run, either. */
  wait_for_jobs(comm);
  stop(comm);
  __atomic_store_n(&comm->abort, 0, __ATOMIC_RELEASE);
}

/* Until what was enqueued is done, as NCCL synchronises its streams. */
static void flush(ncclComm_t comm) {
  while (!nn_stopped(comm) && (busy(comm) || standin_order_pending(comm->order))) {
    standin_sleep(1);
  }
}

static ncclResult_t run_finalize(struct job *job) {
  if (nn_act(job->comm, job->action)) {
    flush(job->comm);
  }
  return nn_stopped(job->comm) ? ncclInternalError : ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  ENTER(ncclCommFinalize, comm);
  CHECK(nn_ready(comm, "CommFinalize"));
  REQUIRE(!comm->finalized && !comm->revoked, ncclInvalidArgument,
      "communicator has been finalized or revoked");
  comm->finalized = true;
  struct job *job = nn_new_job(comm, run_finalize, action);
  return nn_launch_job(job);
}
TWIN(ncclCommFinalize);

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  ENTER(ncclCommDestroy, comm);
  if (comm == NULL) {
    return ncclSuccess;
  }
  REQUIRE(nn_alive(comm), ncclInvalidArgument, "comm %p has already been destroyed",
      (void *)comm);
  CHECK(nn_ready(comm, "CommDestroy"));
  if (nn_act(comm, action)) {
    flush(comm);
  }
  wait_for_jobs(comm);
  stop(comm);
  nn_comm_discard(comm);
  return ncclSuccess;
}
TWIN(ncclCommDestroy);

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  ENTER(ncclCommAbort, comm);
  if (comm == NULL) {
    return ncclSuccess;
  }
  REQUIRE(nn_alive(comm) && nn_comm_retain(comm), ncclInvalidArgument,
      "comm %p has already been destroyed", (void *)comm);
  if (action.kind == STANDIN_DELAY) {
    standin_sleep(action.value);
  } else if (action.kind == STANDIN_HANG) {
    standin_hang();
  }
  stop(comm);
  wait_for_jobs(comm);
  nn_comm_discard(comm);
  nn_comm_release(comm);
  return ncclSuccess;
}
TWIN(ncclCommAbort);

#if STANDIN_NCCL_VERSION >= 22807
ncclResult_t ncclCommRevoke(ncclComm_t comm, int revokeFlags) {
  ENTER_NOW(ncclCommRevoke, comm);
  if (comm == NULL) {
    return ncclSuccess;
  }
  CHECK(nn_check(comm, "CommRevoke"));
  REQUIRE(revokeFlags == 0 && !comm->finalized && !comm->revoked, ncclInvalidArgument,
      "ncclCommRevoke : invalid flags %d or state", revokeFlags);
  comm->revoked = true;
  nn_quiesce(comm);
  wait_for_jobs(comm);
  __atomic_store_n(&comm->async, ncclSuccess, __ATOMIC_RELEASE);
  return ncclSuccess;
}
TWIN(ncclCommRevoke);
#endif

#if STANDIN_NCCL_VERSION >= 22907
static ncclResult_t change_state(ncclComm_t comm, bool suspend) {
  REQUIRE(comm->suspended != suspend, ncclInvalidUsage, "communicator is %s already",
      suspend ? "suspended" : "active");
  flush(comm);
  int nothing = 0;
  int all[MAX_RANKS];
  REQUIRE(nn_exchange(comm, &nothing, sizeof nothing, all), ncclInternalError, "aborted");
  if (suspend) {
    standin_book(comm->device, -(long)SCRATCH_BYTES);
    comm->persistent -= (long)SCRATCH_BYTES;
  } else {
    CHECK(nn_cuda(standin_book(comm->device, (long)SCRATCH_BYTES)));
    comm->persistent += (long)SCRATCH_BYTES;
  }
  comm->suspended = suspend;
  return ncclSuccess;
}

static ncclResult_t run_suspend(struct job *job) {
  return nn_act(job->comm, job->action) ? change_state(job->comm, true) : ncclInternalError;
}

static ncclResult_t run_resume(struct job *job) {
  return nn_act(job->comm, job->action) ? change_state(job->comm, false) : ncclInternalError;
}

ncclResult_t ncclCommSuspend(ncclComm_t comm, int flags) {
  ENTER(ncclCommSuspend, comm);
  CHECK(nn_ready(comm, "CommSuspend"));
  REQUIRE(flags == NCCL_SUSPEND_MEM, ncclInvalidArgument, "ncclCommSuspend : invalid flags %d",
      flags);
  return nn_launch_job(nn_new_job(comm, run_suspend, action));
}
TWIN(ncclCommSuspend);

ncclResult_t ncclCommResume(ncclComm_t comm) {
  ENTER(ncclCommResume, comm);
  CHECK(nn_ready(comm, "CommResume"));
  return nn_launch_job(nn_new_job(comm, run_resume, action));
}
TWIN(ncclCommResume);
#endif

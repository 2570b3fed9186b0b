/*
 * Groups: operations and initialisations wait for the end of the outermost group of their thread.
 * With non-blocking communicators a thread of its own does the work, and the caller polls.
 */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct group {
  ncclResult_t error;
  int blocking;
  struct call *calls;
  struct call **last_call;
  struct job *jobs;
  struct job **last_job;
};

static _Thread_local int depth;
static _Thread_local struct group current;

static void group_open(void) {
  if (depth++ == 0) {
    current = (struct group){.blocking = -1};
    current.last_call = &current.calls;
    current.last_job = &current.jobs;
  }
}

ncclResult_t nn_group_error(ncclResult_t result) {
  if (depth > 0 && result != ncclSuccess && result != ncclInProgress) {
    current.error = result;
  }
  return result;
}

static void free_calls(struct call *call) {
  while (call != NULL) {
    struct call *next = call->next;
    free(call->descs);
    free(call);
    call = next;
  }
}

static void set_async(ncclComm_t comm, ncclResult_t result) {
  __atomic_store_n(&comm->async, (int)result, __ATOMIC_RELEASE);
}

/* Does the calls of one communicator after the other. */
static ncclResult_t enqueue_all(struct group *group) {
  ncclResult_t result = ncclSuccess;
  while (group->calls != NULL) {
    ncclComm_t comm = group->calls->comm;
    struct call *own = NULL;
    struct call **last = &own;
    for (struct call **at = &group->calls; *at != NULL;) {
      struct call *call = *at;
      if (call->comm == comm) {
        *at = call->next;
        call->next = NULL;
        *last = call;
        last = &call->next;
      } else {
        at = &call->next;
      }
    }
    ncclResult_t one = nn_enqueue(own);
    result = result == ncclSuccess ? one : result;
  }
  return result;
}

/* Runs in a thread: a job may have to wait for the jobs of other ranks. */
static void *run_job(void *argument) {
  struct job *job = argument;
  ncclComm_t comm = job->comm;
  job->result = job->run(job);
  set_async(comm, job->result);
  if (job->owner != comm) {
    set_async(job->owner, job->result);
    __atomic_sub_fetch(&job->owner->jobs, 1, __ATOMIC_ACQ_REL);
  }
  __atomic_sub_fetch(&comm->jobs, 1, __ATOMIC_ACQ_REL);
  return NULL;
}

static void start_thread(void *(*body)(void *), void *argument, pthread_t *thread) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigdelset(&all, SIGBUS);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(thread, NULL, body, argument) != 0) {
    abort();
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static ncclResult_t run_jobs(struct job *jobs) {
  ncclResult_t result = ncclSuccess;
  size_t count = 0;
  for (struct job *job = jobs; job != NULL; job = job->next) {
    count++;
  }
  pthread_t *threads = calloc(count + 1, sizeof *threads);
  size_t i = 0;
  for (struct job *job = jobs; job != NULL; job = job->next) {
    start_thread(run_job, job, &threads[i++]);
  }
  i = 0;
  for (struct job *job = jobs; job != NULL; job = job->next) {
    pthread_join(threads[i++], NULL);
    result = result == ncclSuccess ? job->result : result;
  }
  free(threads);
  return result;
}

static void free_jobs(struct job *job) {
  while (job != NULL) {
    struct job *next = job->next;
    free(job);
    job = next;
  }
}

struct background {
  struct group group;
  ncclComm_t comms[MAX_RANKS];
  int count;
};

static void *run_background(void *argument) {
  struct background *background = argument;
  run_jobs(background->group.jobs);
  ncclResult_t result = enqueue_all(&background->group);
  for (int i = 0; i < background->count; i++) {
    ncclComm_t comm = background->comms[i];
    int expected = ncclInProgress;
    __atomic_compare_exchange_n(&comm->async, &expected, (int)result, false, __ATOMIC_ACQ_REL,
        __ATOMIC_ACQUIRE);
    __atomic_sub_fetch(&comm->jobs, 1, __ATOMIC_ACQ_REL);
  }
  for (struct job *job = background->group.jobs; job != NULL; job = job->next) {
    /* A communicator of an init stays, so that its error can be asked for; a child was not given. */
    if (job->result != ncclSuccess && job->owner != job->comm) {
      nn_comm_discard(job->comm);
    }
  }
  free_jobs(background->group.jobs);
  free(background);
  return NULL;
}

static void add_comm(struct background *background, ncclComm_t comm) {
  for (int i = 0; i < background->count; i++) {
    if (background->comms[i] == comm) {
      return;
    }
  }
  if (background->count < MAX_RANKS) {
    background->comms[background->count++] = comm;
    __atomic_add_fetch(&comm->jobs, 1, __ATOMIC_ACQ_REL);
    set_async(comm, ncclInProgress);
  }
}

static ncclResult_t start_background(struct group *group) {
  struct background *background = calloc(1, sizeof *background);
  background->group = *group;
  for (struct call *call = group->calls; call != NULL; call = call->next) {
    add_comm(background, call->comm);
  }
  pthread_t thread;
  start_thread(run_background, background, &thread);
  pthread_detach(thread);
  return ncclInProgress;
}

/* A job's communicators are busy from its start on; without a group that is at once. */
static void mark_jobs(struct job *job) {
  for (; job != NULL; job = job->next) {
    __atomic_add_fetch(&job->comm->jobs, 1, __ATOMIC_ACQ_REL);
    set_async(job->comm, ncclInProgress);
    if (job->owner != job->comm) {
      __atomic_add_fetch(&job->owner->jobs, 1, __ATOMIC_ACQ_REL);
      set_async(job->owner, ncclInProgress);
    }
  }
}

void nn_take_back(ncclComm_t comm, ncclComm_t *out) {
  nn_comm_discard(comm);
  if (out != NULL) {
    __atomic_store_n(out, NULL, __ATOMIC_RELEASE);
  }
}

/* A communicator of an init stays until it is aborted, though it failed; a child was not given. */
static void drop_child(struct job *job) {
  if (job->owner != job->comm) {
    nn_take_back(job->comm, job->out);
  }
}

static void discard(struct group *group) {
  free_calls(group->calls);
  for (struct job *job = group->jobs; job != NULL; job = job->next) {
    drop_child(job);
  }
  free_jobs(group->jobs);
}

static ncclResult_t group_close(bool simulate) {
  if (--depth > 0) {
    return ncclSuccess;
  }
  struct group group = current;
  if (group.calls == NULL && group.jobs == NULL) {
    return group.error;
  }
  if (group.error != ncclSuccess || simulate) {
    discard(&group);
    return group.error;
  }
  /* The lists' ends lie in `current`. */
  mark_jobs(group.jobs);
  if (group.blocking == 0) {
    return start_background(&group);
  }
  ncclResult_t result = run_jobs(group.jobs);
  for (struct job *job = group.jobs; job != NULL; job = job->next) {
    if (job->result != ncclSuccess) {
      drop_child(job);
      /* A parent is not hurt by a child that could not be made. */
      if (job->owner != job->comm) {
        set_async(job->owner, ncclSuccess);
      }
    }
  }
  free_jobs(group.jobs);
  ncclResult_t enqueued = enqueue_all(&group);
  return result == ncclSuccess ? enqueued : result;
}

static ncclResult_t same_blocking(ncclComm_t comm) {
  REQUIRE(current.blocking == -1 || current.blocking == comm->config.blocking,
      nn_group_error(ncclInvalidArgument),
      "Blocking and nonblocking communicators are not allowed in the same group.");
  current.blocking = comm->config.blocking;
  return ncclSuccess;
}

/* Without a group, an operation makes one of its own. */
ncclResult_t nn_submit(struct call *call) {
  ncclComm_t comm = call->comm;
  bool alone = depth == 0;
  group_open();
  ncclResult_t result = same_blocking(comm);
  if (result == ncclSuccess) {
    *current.last_call = call;
    current.last_call = &call->next;
  } else {
    free_calls(call);
  }
  ncclResult_t closed = group_close(false);
  result = result == ncclSuccess ? closed : result;
  if (alone && result == ncclInProgress) {
    /* It may be done already. */
    result = (ncclResult_t)__atomic_load_n(&comm->async, __ATOMIC_ACQUIRE);
  }
  return result;
}

struct job *nn_new_job(ncclComm_t comm, ncclResult_t (*run)(struct job *job),
    struct standin_action action) {
  struct job *job = calloc(1, sizeof *job);
  *job = (struct job){.comm = comm, .owner = comm, .run = run, .action = action};
  return job;
}

ncclResult_t nn_launch_job(struct job *job) {
  group_open();
  ncclResult_t result = same_blocking(job->owner);
  if (result == ncclSuccess) {
    *current.last_job = job;
    current.last_job = &job->next;
  } else {
    nn_take_back(job->comm, job->out);
    free(job);
  }
  ncclResult_t closed = group_close(false);
  return result == ncclSuccess ? closed : result;
}

ncclResult_t ncclGroupStart(void) {
  ENTER_NOW(ncclGroupStart, NULL);
  group_open();
  return ncclSuccess;
}
TWIN(ncclGroupStart);

ncclResult_t ncclGroupEnd(void) {
  ENTER(ncclGroupEnd, NULL);
  nn_act(NULL, action);
  REQUIRE(depth > 0, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  return group_close(false);
}
TWIN(ncclGroupEnd);

#if STANDIN_NCCL_VERSION >= 22200
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *simInfo) {
  ENTER_NOW(ncclGroupSimulateEnd, NULL);
  REQUIRE(depth > 0, ncclInvalidUsage, "ncclGroupEnd: not in a group call.");
  if (simInfo != NULL) {
    REQUIRE(simInfo->magic == 0x74685283, ncclInvalidArgument,
        "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    float micros = 0;
    for (struct call *call = current.calls; call != NULL; call = call->next) {
      micros += 5 + (float)call->count * 1e-4f;
    }
    simInfo->estimatedTime = micros;
  }
  return group_close(true);
}
TWIN(ncclGroupSimulateEnd);
#endif

/* Counters, faults, live objects. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_FAULTS 64
#define MAX_KINDS 32

/* A lock of its own: faults are looked up where si_lock may be held or not. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t reset_happened = PTHREAD_COND_INITIALIZER;
static unsigned resets;
static struct standin_site *sites;

static struct fault {
  char function[64];
  int rank;
  int nth;
  int seen;
  int kind;
  long value;
} faults[MAX_FAULTS];
static int fault_count;
static bool environment_read;

static struct {
  char name[16];
  long count;
} live[MAX_KINDS] = {
    {"memory", 0}, {"handle", 0}, {"mapping", 0}, {"reservation", 0}, {"pinned", 0}, {"stream", 0},
    {"event", 0}, {"graph", 0}, {"exec", 0}, {"module", 0}, {"context", 0}, {"comm", 0},
    {"window", 0}, {"registration", 0}, {"binding", 0}, {"devcomm", 0}};

static int add_fault(const char *function, int nth, int kind, long value) {
  if (fault_count == MAX_FAULTS || strlen(function) >= sizeof faults[0].function || kind < 1
      || kind > STANDIN_STICKY) {
    return -1;
  }
  struct fault *fault = &faults[fault_count++];
  *fault = (struct fault){.rank = -1, .nth = nth, .kind = kind, .value = value};
  snprintf(fault->function, sizeof fault->function, "%s", function);
  char *at = strchr(fault->function, '@');
  if (at != NULL) {
    *at = 0;
    fault->rank = atoi(at + 1);
  }
  return 0;
}

/* STANDIN_FAULT="ncclAllReduce:3:error:5;cuMemCreate:1:error:2;ncclAllReduce@1:2:hang" */
static void read_environment(void) {
  static const char *const kinds[] = {"", "error", "delay", "hang", "async", "sticky"};
  const char *text = getenv("STANDIN_FAULT");
  char *copy = text == NULL ? NULL : strdup(text);
  char *rest = copy;
  for (char *one; copy != NULL && (one = strsep(&rest, ";")) != NULL;) {
    char *function = strsep(&one, ":");
    char *nth = strsep(&one, ":");
    char *kind = strsep(&one, ":");
    int number = 0;
    for (int k = 1; kind != NULL && k <= STANDIN_STICKY; k++) {
      number = strcmp(kind, kinds[k]) == 0 ? k : number;
    }
    if (*function != 0
        && (number == 0 || add_fault(function, atoi(nth), number, one == NULL ? 0 : atol(one)))) {
      fprintf(stderr, "STANDIN_FAULT is not understood: %s\n", text);
      abort();
    }
  }
  free(copy);
}

struct standin_action standin_call(struct standin_site *site, int rank) {
  struct standin_action action = {STANDIN_NONE, 0};
  pthread_mutex_lock(&lock);
  if (!environment_read) {
    environment_read = true;
    read_environment();
  }
  if (!site->known) {
    site->known = 1;
    site->next = sites;
    sites = site;
  }
  site->calls++;
  for (int i = 0; i < fault_count; i++) {
    struct fault *fault = &faults[i];
    if (strcmp(fault->function, site->name) == 0 && (fault->rank == -1 || fault->rank == rank)) {
      fault->seen++;
      if (fault->nth == 0 || fault->nth == fault->seen) {
        action.kind = fault->kind;
        action.value = fault->value;
      }
    }
  }
  pthread_mutex_unlock(&lock);
  return action;
}

int standin_fault(const char *function, int nth_call, int kind, long value) {
  pthread_mutex_lock(&lock);
  if (!environment_read) {
    environment_read = true;
    read_environment();
  }
  int result = add_fault(function, nth_call, kind, value);
  pthread_mutex_unlock(&lock);
  return result;
}

void standin_reset(void) {
  pthread_mutex_lock(&lock);
  environment_read = true;
  fault_count = 0;
  for (struct standin_site *site = sites; site != NULL; site = site->next) {
    site->calls = 0;
  }
  resets++;
  pthread_cond_broadcast(&reset_happened);
  pthread_mutex_unlock(&lock);
}

long standin_calls(const char *function) {
  long calls = 0;
  pthread_mutex_lock(&lock);
  for (struct standin_site *site = sites; site != NULL; site = site->next) {
    calls += strcmp(site->name, function) == 0 ? site->calls : 0;
  }
  pthread_mutex_unlock(&lock);
  return calls;
}

void standin_count(const char *what, long delta) {
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_KINDS; i++) {
    if (strcmp(live[i].name, what) == 0) {
      live[i].count += delta;
      break;
    }
  }
  pthread_mutex_unlock(&lock);
}

long standin_live(const char *what) {
  long count = -1;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < MAX_KINDS && *what != 0; i++) {
    if (strcmp(live[i].name, what) == 0) {
      count = live[i].count;
    }
  }
  pthread_mutex_unlock(&lock);
  return count;
}

void standin_sleep(long milliseconds) {
  struct timespec left = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  while (nanosleep(&left, &left) == -1 && errno == EINTR) {
  }
}

void standin_hang(void) {
  pthread_mutex_lock(&lock);
  unsigned before = resets;
  while (before == resets) {
    pthread_cond_wait(&reset_happened, &lock);
  }
  pthread_mutex_unlock(&lock);
}

/* A key-value space in a folder, with the C ABI of libpmix as far as it is used. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  char nspace[256];
  uint32_t rank;
} pmix_proc_t;

typedef struct {
  uint16_t type;
  union {
    char *string;
    struct {
      char *a;
      char *b;
      char c;
    } envar;
  } data;
} pmix_value_t;

enum { PMIX_STRING = 3, PMIX_GLOBAL = 3, PMIX_ERROR = -1 };

static pmix_proc_t self;
static int fences;

static const char *file(const char *kind, const char *name) {
  static char path[4096];
  snprintf(path, sizeof path, "%s/%s-%s", getenv("PMIX_STANDIN"), kind, name);
  return path;
}

static int note(const char *path, const char *text) {
  char temporary[4200];
  snprintf(temporary, sizeof temporary, "%s.%d", path, (int)getpid());
  FILE *out = fopen(temporary, "w");
  if (!out || fputs(text, out) < 0 || fclose(out) || rename(temporary, path)) {
    return PMIX_ERROR;
  }
  return 0;
}

int PMIx_Init(pmix_proc_t *proc, void *info, size_t ninfo) {
  (void)info;
  if (ninfo || !getenv("PMIX_STANDIN")) {
    return PMIX_ERROR;
  }
  strncpy(self.nspace, getenv("PMIX_NAMESPACE"), sizeof self.nspace - 1);
  self.rank = (uint32_t)atoi(getenv("PMIX_RANK"));
  *proc = self;
  return 0;
}

int PMIx_Put(uint8_t scope, const char *key, pmix_value_t *value) {
  if (scope != PMIX_GLOBAL || value->type != PMIX_STRING) {
    return PMIX_ERROR;
  }
  char name[600];
  snprintf(name, sizeof name, "%u-%s", self.rank, key);
  return note(file("value", name), value->data.string);
}

int PMIx_Commit(void) { return 0; }

int PMIx_Fence(const pmix_proc_t *procs, size_t nprocs, const void *info, size_t ninfo) {
  if (procs || nprocs || info || ninfo) {
    return PMIX_ERROR;
  }
  char name[64];
  int fence = fences++;
  snprintf(name, sizeof name, "%d-%u", fence, self.rank);
  if (note(file("fence", name), "")) {
    return PMIX_ERROR;
  }
  for (int rank = 0; rank < atoi(getenv("OMPI_COMM_WORLD_SIZE")); rank++) {
    snprintf(name, sizeof name, "%d-%d", fence, rank);
    while (access(file("fence", name), F_OK)) {
      usleep(1000);
    }
  }
  return 0;
}

int PMIx_Get(const pmix_proc_t *of, const char *key, const void *info, size_t ninfo,
             pmix_value_t **found) {
  if (info || ninfo || strcmp(of->nspace, self.nspace)) {
    return PMIX_ERROR;
  }
  char name[600];
  snprintf(name, sizeof name, "%u-%s", of->rank, key);
  FILE *in = fopen(file("value", name), "r");
  if (!in) {
    return PMIX_ERROR;
  }
  pmix_value_t *value = calloc(1, sizeof *value);
  value->type = PMIX_STRING;
  value->data.string = calloc(1, 4096);
  size_t length = fread(value->data.string, 1, 4095, in);
  fclose(in);
  *found = value;
  return length ? 0 : PMIX_ERROR;
}

int PMIx_Finalize(const void *info, size_t ninfo) {
  if (info || ninfo) {
    return PMIX_ERROR;
  }
  char name[16];
  snprintf(name, sizeof name, "%u", self.rank);
  return note(file("final", name), "");
}

/* The parameters that NCCL 2.30.4 and later lets one read: the nine that it registers. */
#define _GNU_SOURCE
#include "nccl_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if STANDIN_NCCL_VERSION >= 23004

enum type { U8, U32, I32, U64, TEXT };

struct ncclParamHandle {
  const char *key;
  enum type type;
  const char *otherwise;
  bool published;
};

/* In the order of the keys, as the registry lists them. */
static struct ncclParamHandle params[] = {
    {"NCCL_DEBUG", I32, "0", true},
    {"NCCL_DEBUG_FILE", TEXT, "", true},
    {"NCCL_DEBUG_SUBSYS", U64, "0", true},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT", TEXT, "[%F %T] ", true},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS", U32, "4", true},
    {"NCCL_NO_CACHE", TEXT, "", false},
    {"NCCL_PARAM_DUMP_ALL", U8, "0", false},
    {"NCCL_SET_THREAD_NAME", U8, "0", true},
    {"NCCL_WARN_ENABLE_DEBUG_INFO", U8, "0", false},
};

#define PARAMS ((int)(sizeof params / sizeof params[0]))

static const char *value_of(const struct ncclParamHandle *param) {
  const char *value = getenv(param->key);
  return value == NULL ? param->otherwise : value;
}

static struct ncclParamHandle *find(const char *key) {
  for (int i = 0; i < PARAMS; i++) {
    if (strcmp(params[i].key, key) == 0) {
      return &params[i];
    }
  }
  return NULL;
}

ncclResult_t ncclParamBind(ncclParamHandle_t *out, const char *key) {
  ENTER_NOW(ncclParamBind, NULL);
  if (out == NULL || key == NULL || find(key) == NULL) {
    return ncclInvalidArgument;
  }
  *out = find(key);
  return ncclSuccess;
}
TWIN(ncclParamBind);

/* Only the type that the parameter has. */
#define GETTER(name, T, kind)                                                                       \
  ncclResult_t name(ncclParamHandle_t h, T *out) {                                                  \
    ENTER_NOW(name, NULL);                                                                          \
    if (h == NULL || out == NULL || (int)h->type != (kind)) {                                       \
      return ncclInvalidArgument;                                                                   \
    }                                                                                               \
    *out = (T)strtoull(value_of(h), NULL, 0);                                                       \
    return ncclSuccess;                                                                             \
  }                                                                                                 \
  TWIN(name)

GETTER(ncclParamGetI8, int8_t, -1);
GETTER(ncclParamGetI16, int16_t, -1);
GETTER(ncclParamGetI32, int32_t, I32);
GETTER(ncclParamGetI64, int64_t, -1);
GETTER(ncclParamGetU8, uint8_t, U8);
GETTER(ncclParamGetU16, uint16_t, -1);
GETTER(ncclParamGetU32, uint32_t, U32);
GETTER(ncclParamGetU64, uint64_t, U64);

ncclResult_t ncclParamGetStr(ncclParamHandle_t h, const char **out) {
  ENTER_NOW(ncclParamGetStr, NULL);
  if (h == NULL || out == NULL || h->type != TEXT) {
    return ncclInvalidArgument;
  }
  *out = value_of(h);
  return ncclSuccess;
}
TWIN(ncclParamGetStr);

ncclResult_t ncclParamGet(ncclParamHandle_t h, void *out, int maxLen, int *len) {
  ENTER_NOW(ncclParamGet, NULL);
  static const int sizes[] = {1, 4, 4, 8};
  if (h == NULL || out == NULL) {
    return ncclInvalidArgument;
  }
  const char *text = value_of(h);
  uint64_t number = strtoull(text, NULL, 0);
  int size = h->type == TEXT ? (int)strlen(text) + 1 : sizes[h->type];
  if (size > maxLen) {
    return ncclInvalidArgument;
  }
  memcpy(out, h->type == TEXT ? (const void *)text : &number, (size_t)size);
  if (len != NULL) {
    *len = size;
  }
  return ncclSuccess;
}
TWIN(ncclParamGet);

ncclResult_t ncclParamGetParameter(const char *key, const char **value, int *valueLen) {
  ENTER_NOW(ncclParamGetParameter, NULL);
  if (key == NULL || value == NULL || valueLen == NULL) {
    return ncclInvalidArgument;
  }
  struct ncclParamHandle *param = find(key);
  *value = param == NULL ? NULL : value_of(param);
  *valueLen = param == NULL ? 0 : (int)strlen(*value);
  return param == NULL ? ncclInvalidArgument : ncclSuccess;
}
TWIN(ncclParamGetParameter);

static bool shown(const struct ncclParamHandle *param) {
  const char *all = getenv("NCCL_PARAM_DUMP_ALL");
  return param->published || (all != NULL && *all != 0 && strcmp(all, "0") != 0);
}

ncclResult_t ncclParamGetAllParameterKeys(const char ***table, int *tableLen) {
  ENTER_NOW(ncclParamGetAllParameterKeys, NULL);
  static _Thread_local const char *keys[PARAMS];
  if (table == NULL || tableLen == NULL) {
    return ncclInvalidArgument;
  }
  *tableLen = 0;
  for (int i = 0; i < PARAMS; i++) {
    if (shown(&params[i])) {
      keys[(*tableLen)++] = params[i].key;
    }
  }
  *table = keys;
  return ncclSuccess;
}
TWIN(ncclParamGetAllParameterKeys);

void ncclParamDumpAll(void) {
  printf("=== ncclParam Registry Dump ===\n");
  for (int i = 0; i < PARAMS; i++) {
    if (shown(&params[i])) {
      printf("%s=%s\n", params[i].key, value_of(&params[i]));
    }
  }
  fflush(stdout);
}
TWIN(ncclParamDumpAll);

#else
/* ISO C forbids an empty file. */
typedef int nothing_before_2_30_4;
#endif

/* ncclConfig_t, read as NCCL reads it: only as much as the caller's header and this release know. */
#include "nccl_internal.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* sizeof(ncclConfig_t) of the release. */
#define LIBRARY_BYTES                                                                               \
  (STANDIN_NCCL_VERSION >= 23000 ? 96 : STANDIN_NCCL_VERSION >= 22900 ? 88                          \
      : STANDIN_NCCL_VERSION >= 22800 ? 80 : STANDIN_NCCL_VERSION >= 22700 ? 72                     \
      : STANDIN_NCCL_VERSION >= 21800 ? 48 : 40)

enum rule { ANY, BOOLEAN, NOT_NEGATIVE, POSITIVE, UP_TO_2, UP_TO_3, UP_TO_64 };

/* The integers: since which header they mean something, what they may be, which variable rules. */
static const struct field {
  const char *name;
  size_t offset;
  unsigned since;
  enum rule rule;
  int otherwise;
  const char *variable;
} fields[] = {
#define F(name, since, rule, otherwise, variable)                                                   \
  {#name, offsetof(ncclConfig_t, name), since, rule, otherwise, variable}
    F(blocking, 21400, BOOLEAN, 1, "NCCL_COMM_BLOCKING"),
    F(cgaClusterSize, 21700, NOT_NEGATIVE, 4, "NCCL_CGA_CLUSTER_SIZE"),
    F(minCTAs, 21700, POSITIVE, 1, "NCCL_MIN_CTAS"),
    F(maxCTAs, 21700, POSITIVE, 64, "NCCL_MAX_CTAS"),
    F(splitShare, 21700, BOOLEAN, 0, "NCCL_COMM_SPLIT_SHARE_RESOURCES"),
    F(trafficClass, 22500, ANY, NCCL_CONFIG_UNDEF_INT, NULL),
    F(collnetEnable, 22700, BOOLEAN, 0, "NCCL_COLLNET_ENABLE"),
    F(CTAPolicy, 22700, UP_TO_3, 0, "NCCL_CTA_POLICY"),
    F(shrinkShare, 22700, BOOLEAN, 0, "NCCL_COMM_SHRINK_SHARE_RESOURCES"),
    F(nvlsCTAs, 22700, POSITIVE, NCCL_CONFIG_UNDEF_INT, "NCCL_NVLS_NCHANNELS"),
    F(nChannelsPerNetPeer, 22800, UP_TO_64, NCCL_CONFIG_UNDEF_INT,
        "NCCL_NCHANNELS_PER_NET_PEER"),
    F(nvlinkCentricSched, 22800, BOOLEAN, 0, "NCCL_NVLINK_UTIL_CENTRIC_SCHED_ENABLE"),
    F(graphUsageMode, 22900, UP_TO_2, 2, NULL),
    F(numRmaCtx, 22900, NOT_NEGATIVE, 1, "NCCL_NUM_RMA_CTX"),
    F(maxP2pPeers, 23000, POSITIVE, NCCL_CONFIG_UNDEF_INT, "NCCL_P2P_MAX_PEERS"),
    F(graphStreamOrdering, 23005, BOOLEAN, 1, "NCCL_GRAPH_STREAM_ORDERING"),
};

static bool allowed(int value, enum rule rule) {
  switch (rule) {
    case BOOLEAN:
      return value == 0 || value == 1;
    case NOT_NEGATIVE:
      return value >= 0;
    case POSITIVE:
      return value > 0;
    case UP_TO_2:
      return value >= 0 && value <= 2;
    case UP_TO_3:
      return value >= 0 && value <= 3;
    case UP_TO_64:
      return value > 0 && value <= 64;
    default:
      return true;
  }
}

ncclResult_t nn_config(ncclConfig_t *into, const ncclConfig_t *given) {
  ncclConfig_t read = {.size = sizeof read, .magic = NCCL_API_MAGIC,
      .version = STANDIN_NCCL_VERSION};
  size_t count = sizeof fields / sizeof fields[0];
  for (size_t i = 0; i < count; i++) {
    *(int *)((char *)&read + fields[i].offset) = NCCL_CONFIG_UNDEF_INT;
  }
  if (given != NULL) {
    size_t size = given->size > LIBRARY_BYTES ? LIBRARY_BYTES : given->size;
    read.magic = 0;
    memcpy(&read, given, size);
    REQUIRE(read.magic == NCCL_API_MAGIC, ncclInvalidArgument,
        "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    if (read.version < 21700) {
      read.netName = NULL;
    }
  }
  for (size_t i = 0; i < count; i++) {
    int *value = (int *)((char *)&read + fields[i].offset);
    if (read.version < fields[i].since || fields[i].since > STANDIN_NCCL_VERSION) {
      *value = NCCL_CONFIG_UNDEF_INT;
    }
    REQUIRE(*value == NCCL_CONFIG_UNDEF_INT || allowed(*value, fields[i].rule),
        ncclInvalidArgument, "Invalid config %s attribute value %d", fields[i].name, *value);
    const char *variable = fields[i].variable == NULL ? NULL : getenv(fields[i].variable);
    if (variable != NULL && *variable != 0) {
      *value = atoi(variable);
    } else if (*value == NCCL_CONFIG_UNDEF_INT) {
      *value = fields[i].otherwise;
    }
  }
  REQUIRE(read.minCTAs <= read.maxCTAs, ncclInvalidArgument,
      "Invalid config min/max channels attribute value %d/%d", read.minCTAs, read.maxCTAs);
  *into = read;
  return ncclSuccess;
}

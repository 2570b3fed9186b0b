/* Initialisation, devices, contexts, texts of errors. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

pthread_mutex_t si_lock = PTHREAD_MUTEX_INITIALIZER;
struct CUctx_st si_contexts[MAX_DEVICES];

static bool initialized;

#define MAX_STACK 16
static _Thread_local CUcontext stack[MAX_STACK];
static _Thread_local int depth;
/* Set while the thread runs a host function: those must not call CUDA. */
_Thread_local bool si_in_host_function;

static long setting(const char *name, long otherwise) {
  const char *text = getenv(name);
  return text == NULL || *text == 0 ? otherwise : strtol(text, NULL, 0);
}

int si_device_count(void) {
  long count = setting("STANDIN_CUDA_DEVICES", 8);
  return count > MAX_DEVICES ? MAX_DEVICES : (int)count;
}

int si_driver_version(void) {
  return (int)setting("STANDIN_CUDA_DRIVER", 13000);
}

/* Whether memory can be shared by fabric handle; no by default, as without IMEX. */
bool si_fabric(void) {
  return setting("STANDIN_CUDA_FABRIC", 0) != 0;
}

size_t si_device_memory(void) {
  return (size_t)setting("STANDIN_CUDA_MEMORY", 16L << 30);
}

CUcontext si_current(void) {
  return depth == 0 ? NULL : stack[depth - 1];
}

CUresult si_enter(struct standin_site *site, enum si_needs needs) {
  CUcontext ctx = si_current();
  struct standin_action action = standin_call(site, ctx == NULL ? -1 : ctx->device);
  if (si_in_host_function) {
    return CUDA_ERROR_NOT_PERMITTED;
  }
  switch (action.kind) {
    case STANDIN_ERROR:
    case STANDIN_ASYNC:
      return (CUresult)action.value;
    case STANDIN_DELAY:
      standin_sleep(action.value);
      break;
    case STANDIN_HANG:
      standin_hang();
      break;
    case STANDIN_STICKY:
      if (ctx != NULL) {
        standin_break(ctx->device, (int)action.value);
      }
      break;
    default:
      break;
  }
  if (needs >= NEEDS_INIT && !__atomic_load_n(&initialized, __ATOMIC_ACQUIRE)) {
    return CUDA_ERROR_NOT_INITIALIZED;
  }
  if (needs == NEEDS_CONTEXT) {
    REQUIRE(ctx != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(ctx->retained > 0, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return (CUresult)__atomic_load_n(&ctx->sticky, __ATOMIC_ACQUIRE);
  }
  return CUDA_SUCCESS;
}

void standin_break(int device, int error) {
  if (device >= 0 && device < MAX_DEVICES) {
    pthread_mutex_lock(&si_lock);
    __atomic_store_n(&si_contexts[device].sticky, error, __ATOMIC_RELEASE);
    /* Waiters look at the error, too. */
    for (CUstream stream = si_all_streams(); stream != NULL; stream = stream->next) {
      pthread_cond_broadcast(&stream->done);
    }
    pthread_mutex_unlock(&si_lock);
  }
}

int standin_broken(int device) {
  return __atomic_load_n(&si_contexts[device].sticky, __ATOMIC_ACQUIRE);
}

CUresult standin_device(int *device) {
  REQUIRE(cuInit(0) == CUDA_SUCCESS, CUDA_ERROR_NO_DEVICE);
  if (si_current() == NULL) {
    CUcontext ctx;
    CUresult result = cuDevicePrimaryCtxRetain(&ctx, 0);
    REQUIRE(result == CUDA_SUCCESS, result);
    cuCtxSetCurrent(ctx);
  }
  *device = si_current()->device;
  return (CUresult)standin_broken(*device);
}

CUresult standin_book(int device, long bytes) {
  pthread_mutex_lock(&si_lock);
  CUcontext ctx = &si_contexts[device];
  bool fits = (long)ctx->used + bytes <= (long)si_device_memory();
  if (fits) {
    ctx->used += (size_t)bytes;
    standin_count("memory", bytes);
  }
  pthread_mutex_unlock(&si_lock);
  return fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuInit(unsigned int flags) {
  ENTER(cuInit, NEEDS_NOTHING);
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(si_device_count() > 0, CUDA_ERROR_NO_DEVICE);
  __atomic_store_n(&initialized, true, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion, NEEDS_NOTHING);
  REQUIRE(version != NULL, CUDA_ERROR_INVALID_VALUE);
  *version = si_driver_version();
  return CUDA_SUCCESS;
}

static const struct {
  int code;
  const char *name;
  const char *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped"},
    {211, "CUDA_ERROR_NOT_MAPPED", "resource not mapped"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        "peer access is not supported between these two devices"},
    {218, "CUDA_ERROR_INVALID_PTX", "a PTX JIT compilation failed"},
    {304, "CUDA_ERROR_OPERATING_SYSTEM", "OS call failed or operation not supported on this OS"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE",
        "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
        "cannot set while device is active in this process"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
        "part or all of the requested memory range is already mapped"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
        "pointer does not correspond to a registered memory region"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        "operation failed due to a previous error during capture"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE",
        "operation would result in a merge of separate capture sequences"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "capture was not ended in the same stream as it"
        " began"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
        "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
        "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        "operation would make the legacy stream depend on a capturing blocking stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT",
        "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        "attempt to terminate a thread-local capture sequence from another thread"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        "the graph update was not performed because it included changes which violated constraints"
        " specific to instantiated graph update"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static CUresult describe(CUresult error, const char **out, bool name) {
  REQUIRE(out != NULL, CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
    if (errors[i].code == (int)error) {
      *out = name ? errors[i].name : errors[i].text;
      return CUDA_SUCCESS;
    }
  }
  *out = NULL;
  return CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
  return describe(error, name, true);
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  return describe(error, text, false);
}

CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount, NEEDS_INIT);
  REQUIRE(count != NULL, CUDA_ERROR_INVALID_VALUE);
  *count = si_device_count();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet, NEEDS_INIT);
  REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(ordinal >= 0 && ordinal < si_device_count(), CUDA_ERROR_INVALID_DEVICE);
  *device = ordinal;
  return CUDA_SUCCESS;
}

#define REQUIRE_DEVICE(dev) REQUIRE(dev >= 0 && dev < si_device_count(), CUDA_ERROR_INVALID_DEVICE)

CUresult cuDeviceGetName(char *name, int len, CUdevice dev) {
  ENTER(cuDeviceGetName, NEEDS_INIT);
  REQUIRE(name != NULL && len > 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  snprintf(name, (size_t)len, "NVIDIA Stand-in");
  return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev) {
  ENTER(cuDeviceTotalMem_v2, NEEDS_INIT);
  REQUIRE(bytes != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  *bytes = si_device_memory();
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice dev) {
  ENTER(cuDeviceGetAttribute, NEEDS_INIT);
  REQUIRE(value != NULL && attribute > 0 && (int)attribute < 200, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 49152;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 132;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = 0x10 + dev;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      break;
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      *value = (int)setting("STANDIN_CUDA_VMM", 1);
      break;
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
      *value = si_fabric();
      break;
    case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
      *value = (int)setting("STANDIN_CUDA_MULTICAST", 1);
      break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *value = 1;
      break;
    default:
      *value = 0;
      break;
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev) {
  ENTER(cuDeviceGetUuid_v2, NEEDS_INIT);
  REQUIRE(uuid != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  memcpy(uuid->bytes, "standin-device-\0", 16);
  uuid->bytes[15] = (char)dev;
  return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev) {
  ENTER(cuDeviceCanAccessPeer, NEEDS_INIT);
  REQUIRE(canAccessPeer != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  REQUIRE_DEVICE(peerDev);
  *canAccessPeer = dev != peerDev;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev) {
  ENTER(cuDeviceGetPCIBusId, NEEDS_INIT);
  REQUIRE(pciBusId != NULL && len > 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", 0x10 + dev);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId) {
  ENTER(cuDeviceGetByPCIBusId, NEEDS_INIT);
  REQUIRE(dev != NULL && pciBusId != NULL, CUDA_ERROR_INVALID_VALUE);
  unsigned domain;
  unsigned bus;
  REQUIRE(sscanf(pciBusId, "%x:%x:", &domain, &bus) == 2, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(bus >= 0x10 && (int)bus - 0x10 < si_device_count(), CUDA_ERROR_INVALID_DEVICE);
  *dev = (int)bus - 0x10;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev) {
  ENTER(cuDevicePrimaryCtxRetain, NEEDS_INIT);
  REQUIRE(ctx != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  pthread_mutex_lock(&si_lock);
  *ctx = &si_contexts[dev];
  (*ctx)->device = dev;
  if ((*ctx)->retained++ == 0) {
    standin_count("context", 1);
  }
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

static void context_ended(CUcontext ctx) {
  __atomic_store_n(&ctx->sticky, 0, __ATOMIC_RELEASE);
  ctx->peers = 0;
  standin_count("context", -1);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  ENTER(cuDevicePrimaryCtxRelease_v2, NEEDS_INIT);
  REQUIRE_DEVICE(dev);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CUcontext ctx = &si_contexts[dev];
  CHECK(ctx->retained > 0, CUDA_ERROR_INVALID_CONTEXT);
  if (--ctx->retained == 0) {
    context_ended(ctx);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  ENTER(cuDevicePrimaryCtxReset_v2, NEEDS_INIT);
  REQUIRE_DEVICE(dev);
  pthread_mutex_lock(&si_lock);
  if (si_contexts[dev].retained > 0) {
    si_contexts[dev].retained = 0;
    context_ended(&si_contexts[dev]);
  }
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  ENTER(cuDevicePrimaryCtxSetFlags_v2, NEEDS_INIT);
  REQUIRE_DEVICE(dev);
  si_contexts[dev].flags = flags;
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState, NEEDS_INIT);
  REQUIRE(flags != NULL && active != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE_DEVICE(dev);
  *flags = si_contexts[dev].flags;
  *active = si_contexts[dev].retained > 0;
  return CUDA_SUCCESS;
}

static bool is_context(CUcontext ctx) {
  return ctx >= si_contexts && ctx < si_contexts + MAX_DEVICES && ctx->retained > 0;
}

CUresult cuCtxSetCurrent(CUcontext ctx) {
  ENTER(cuCtxSetCurrent, NEEDS_INIT);
  REQUIRE(ctx == NULL || is_context(ctx), CUDA_ERROR_INVALID_CONTEXT);
  if (ctx == NULL) {
    depth -= depth > 0;
  } else if (depth == 0) {
    stack[depth++] = ctx;
  } else {
    stack[depth - 1] = ctx;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *ctx) {
  ENTER(cuCtxGetCurrent, NEEDS_INIT);
  REQUIRE(ctx != NULL, CUDA_ERROR_INVALID_VALUE);
  *ctx = si_current();
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  ENTER(cuCtxPushCurrent_v2, NEEDS_INIT);
  REQUIRE(is_context(ctx), CUDA_ERROR_INVALID_CONTEXT);
  REQUIRE(depth < MAX_STACK, CUDA_ERROR_OUT_OF_MEMORY);
  stack[depth++] = ctx;
  return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
  ENTER(cuCtxPopCurrent_v2, NEEDS_INIT);
  REQUIRE(depth > 0, CUDA_ERROR_INVALID_CONTEXT);
  depth--;
  if (ctx != NULL) {
    *ctx = stack[depth];
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device) {
  ENTER(cuCtxGetDevice, NEEDS_CONTEXT);
  REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
  *device = si_current()->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int *version) {
  ENTER(cuCtxGetApiVersion, NEEDS_INIT);
  REQUIRE(version != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(ctx == NULL ? si_current() != NULL : is_context(ctx), CUDA_ERROR_INVALID_CONTEXT);
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange, NEEDS_CONTEXT);
  if (least != NULL) {
    *least = 0;
  }
  if (greatest != NULL) {
    *greatest = -5;
  }
  return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags) {
  ENTER(cuCtxEnablePeerAccess, NEEDS_CONTEXT);
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(is_context(peer), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext ctx = si_current();
  REQUIRE(peer != ctx, CUDA_ERROR_INVALID_DEVICE);
  unsigned bit = 1u << peer->device;
  REQUIRE(!(ctx->peers & bit), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  ctx->peers |= bit;
  return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer) {
  ENTER(cuCtxDisablePeerAccess, NEEDS_CONTEXT);
  REQUIRE(is_context(peer), CUDA_ERROR_INVALID_CONTEXT);
  unsigned bit = 1u << peer->device;
  REQUIRE(si_current()->peers & bit, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
  si_current()->peers &= ~bit;
  return CUDA_SUCCESS;
}

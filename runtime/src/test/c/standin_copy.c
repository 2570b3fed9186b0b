/* Pinned host memory, stream-ordered allocations, copies, fills, and what a pointer points to. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include "cuda_memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that is not of the VMM kind: pinned, registered, or of the stream-ordered allocator. */
enum block_kind { BLOCK_PINNED, BLOCK_REGISTERED, BLOCK_POOL };

struct block {
  struct block *next;
  enum block_kind kind;
  CUdeviceptr address;
  size_t size;
  CUcontext ctx;
};

static struct block *blocks;

static struct block *find_block(CUdeviceptr ptr) {
  for (struct block *at = blocks; at != NULL; at = at->next) {
    if (ptr >= at->address && ptr < at->address + at->size) {
      return at;
    }
  }
  return NULL;
}

static void add_block(enum block_kind kind, void *at, size_t size, CUcontext ctx) {
  struct block *block = calloc(1, sizeof *block);
  *block = (struct block){blocks, kind, (CUdeviceptr)(uintptr_t)at, size, ctx};
  blocks = block;
  if (kind != BLOCK_POOL) {
    standin_count("pinned", (long)size);
  } else {
    ctx->used += size;
    standin_count("memory", (long)size);
  }
}

static void remove_block(struct block *block) {
  for (struct block **at = &blocks; *at != NULL; at = &(*at)->next) {
    if (*at == block) {
      *at = block->next;
      break;
    }
  }
  if (block->kind != BLOCK_POOL) {
    standin_count("pinned", -(long)block->size);
  } else {
    block->ctx->used -= block->size;
    standin_count("memory", -(long)block->size);
  }
  if (block->kind != BLOCK_REGISTERED) {
    munmap((void *)(uintptr_t)block->address, block->size);
  }
  free(block);
}

/* Device memory must be mapped with access for the device; the host's own memory is not checked. */
CUresult si_check_range(CUdeviceptr ptr, size_t size, int device) {
  CUdeviceptr end = ptr + size;
  while (ptr < end) {
    if (si_reservation(ptr) == NULL) {
      return ptr < 4096 ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    }
    struct mapping *mapping = si_mapping(ptr);
    if (mapping == NULL || !(mapping->readers & (1u << device))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ptr = mapping->address + mapping->size;
  }
  return CUDA_SUCCESS;
}

int standin_accessible(const void *ptr, size_t size, int device) {
  pthread_mutex_lock(&si_lock);
  CUresult result = si_check_range((CUdeviceptr)(uintptr_t)ptr, size, device);
  pthread_mutex_unlock(&si_lock);
  return result == CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int flags) {
  ENTER(cuMemHostAlloc, NEEDS_CONTEXT);
  REQUIRE(pp != NULL && bytesize > 0 && flags < 8, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUresult result = si_unsafe();
  CHECK(result == CUDA_SUCCESS, result);
  void *at = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  add_block(BLOCK_PINNED, at, bytesize, si_current());
  *pp = at;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemFreeHost(void *p) {
  ENTER(cuMemFreeHost, NEEDS_CONTEXT);
  pthread_mutex_lock(&si_lock);
  CUresult result = si_unsafe();
  CHECK(result == CUDA_SUCCESS, result);
  struct block *block = find_block((CUdeviceptr)(uintptr_t)p);
  CHECK(block != NULL && block->kind == BLOCK_PINNED
          && block->address == (CUdeviceptr)(uintptr_t)p,
      CUDA_ERROR_INVALID_VALUE);
  remove_block(block);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemHostRegister_v2(void *p, size_t bytesize, unsigned int flags) {
  ENTER(cuMemHostRegister_v2, NEEDS_CONTEXT);
  REQUIRE(p != NULL && bytesize > 0 && flags < 16, CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)p;
  pthread_mutex_lock(&si_lock);
  CUresult result = si_unsafe();
  CHECK(result == CUDA_SUCCESS, result);
  for (struct block *at = blocks; at != NULL; at = at->next) {
    CHECK(ptr + bytesize <= at->address || ptr >= at->address + at->size,
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  }
  add_block(BLOCK_REGISTERED, p, bytesize, si_current());
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemHostUnregister(void *p) {
  ENTER(cuMemHostUnregister, NEEDS_CONTEXT);
  pthread_mutex_lock(&si_lock);
  CUresult result = si_unsafe();
  CHECK(result == CUDA_SUCCESS, result);
  struct block *block = find_block((CUdeviceptr)(uintptr_t)p);
  CHECK(block != NULL && block->kind == BLOCK_REGISTERED
          && block->address == (CUdeviceptr)(uintptr_t)p,
      CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  remove_block(block);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *ptr, void *p, unsigned int flags) {
  ENTER(cuMemHostGetDevicePointer_v2, NEEDS_CONTEXT);
  REQUIRE(ptr != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  struct block *block = find_block((CUdeviceptr)(uintptr_t)p);
  CUresult result = CUDA_SUCCESS;
  CHECK(block != NULL && block->kind != BLOCK_POOL, CUDA_ERROR_INVALID_VALUE);
  *ptr = (CUdeviceptr)(uintptr_t)p;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemAllocAsync(CUdeviceptr *ptr, size_t bytesize, CUstream handle) {
  ENTER(cuMemAllocAsync, NEEDS_CONTEXT);
  REQUIRE(ptr != NULL && bytesize > 0, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  CHECK(stream->capture == NULL, CUDA_ERROR_NOT_SUPPORTED);
  CHECK(stream->ctx->used + bytesize <= si_device_memory(), CUDA_ERROR_OUT_OF_MEMORY);
  void *at = mmap(NULL, bytesize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  add_block(BLOCK_POOL, at, bytesize, stream->ctx);
  *ptr = (CUdeviceptr)(uintptr_t)at;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static void run_free(void *data) {
  pthread_mutex_lock(&si_lock);
  struct block *block = find_block((CUdeviceptr)(uintptr_t)data);
  if (block != NULL) {
    remove_block(block);
  }
  pthread_mutex_unlock(&si_lock);
}

CUresult cuMemFreeAsync(CUdeviceptr ptr, CUstream handle) {
  ENTER(cuMemFreeAsync, NEEDS_CONTEXT);
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  CHECK(stream->capture == NULL, CUDA_ERROR_NOT_SUPPORTED);
  struct block *block = find_block(ptr);
  CHECK(block != NULL && block->kind == BLOCK_POOL && block->address == ptr,
      CUDA_ERROR_INVALID_VALUE);
  result = si_submit(stream,
      si_op_create(CU_GRAPH_NODE_TYPE_MEM_FREE, run_free, (void *)(uintptr_t)ptr, NULL));
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

struct copy {
  CUdeviceptr dst;
  CUdeviceptr src;
  size_t size;
};

static void run_copy(void *data) {
  struct copy *copy = data;
  memmove((void *)(uintptr_t)copy->dst, (const void *)(uintptr_t)copy->src, copy->size);
}

/* With the lock held. */
static CUresult submit_copy(CUstream stream, CUdeviceptr dst, CUdeviceptr src, size_t size) {
  REQUIRE(size > 0, CUDA_SUCCESS);
  REQUIRE(si_check_range(dst, size, stream->ctx->device) == CUDA_SUCCESS
          && si_check_range(src, size, stream->ctx->device) == CUDA_SUCCESS,
      CUDA_ERROR_INVALID_VALUE);
  struct copy *copy = malloc(sizeof *copy);
  *copy = (struct copy){dst, src, size};
  return si_submit(stream, si_op_create(CU_GRAPH_NODE_TYPE_MEMCPY, run_copy, copy, free));
}

static CUresult copy_async(CUdeviceptr dst, CUdeviceptr src, size_t size, CUstream handle) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS) {
    result = submit_copy(stream, dst, src, size);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* Blocking copies go by the legacy stream, as the driver's do. */
static CUresult copy_now(CUdeviceptr dst, CUdeviceptr src, size_t size) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(NULL, &stream);
  CHECK(result == CUDA_SUCCESS, result);
  result = si_unsafe();
  CHECK(result == CUDA_SUCCESS, result);
  result = submit_copy(stream, dst, src, size);
  CHECK(result == CUDA_SUCCESS, result);
  si_wait_stream(stream, stream->submitted);
  result = (CUresult)standin_broken(stream->ctx->device);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t byteCount, CUstream stream) {
  ENTER(cuMemcpyAsync, NEEDS_CONTEXT);
  return copy_async(dst, src, byteCount, stream);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t byteCount, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync_v2, NEEDS_CONTEXT);
  return copy_async(dst, (CUdeviceptr)(uintptr_t)src, byteCount, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t byteCount, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync_v2, NEEDS_CONTEXT);
  return copy_async((CUdeviceptr)(uintptr_t)dst, src, byteCount, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t byteCount,
    CUstream stream) {
  ENTER(cuMemcpyDtoDAsync_v2, NEEDS_CONTEXT);
  return copy_async(dst, src, byteCount, stream);
}

CUresult cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t byteCount) {
  ENTER(cuMemcpy, NEEDS_CONTEXT);
  return copy_now(dst, src, byteCount);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t byteCount) {
  ENTER(cuMemcpyHtoD_v2, NEEDS_CONTEXT);
  return copy_now(dst, (CUdeviceptr)(uintptr_t)src, byteCount);
}

CUresult cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t byteCount) {
  ENTER(cuMemcpyDtoH_v2, NEEDS_CONTEXT);
  return copy_now((CUdeviceptr)(uintptr_t)dst, src, byteCount);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t byteCount) {
  ENTER(cuMemcpyDtoD_v2, NEEDS_CONTEXT);
  return copy_now(dst, src, byteCount);
}

struct fill {
  CUdeviceptr dst;
  unsigned value;
  size_t width;
  size_t count;
};

static void run_fill(void *data) {
  struct fill *fill = data;
  char *at = (char *)(uintptr_t)fill->dst;
  for (size_t i = 0; i < fill->count; i++) {
    memcpy(at + i * fill->width, &fill->value, fill->width);
  }
}

/* The values are little-endian, as this machine must be. */
static CUresult fill(struct fill values, CUstream handle, bool wait) {
  size_t size = values.count * values.width;
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  CHECK(result == CUDA_SUCCESS && size > 0, result);
  CHECK(values.dst % values.width == 0, CUDA_ERROR_INVALID_VALUE);
  result = si_check_range(values.dst, size, stream->ctx->device);
  CHECK(result == CUDA_SUCCESS, result);
  struct fill *copy = malloc(sizeof *copy);
  *copy = values;
  result = si_submit(stream, si_op_create(CU_GRAPH_NODE_TYPE_MEMSET, run_fill, copy, free));
  if (wait && result == CUDA_SUCCESS) {
    si_wait_stream(stream, stream->submitted);
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, CUstream stream) {
  ENTER(cuMemsetD8Async, NEEDS_CONTEXT);
  return fill((struct fill){dst, value, 1, n}, stream, false);
}

CUresult cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, CUstream stream) {
  ENTER(cuMemsetD16Async, NEEDS_CONTEXT);
  return fill((struct fill){dst, value, 2, n}, stream, false);
}

CUresult cuMemsetD32Async(CUdeviceptr dst, unsigned int value, size_t n, CUstream stream) {
  ENTER(cuMemsetD32Async, NEEDS_CONTEXT);
  return fill((struct fill){dst, value, 4, n}, stream, false);
}

CUresult cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n) {
  ENTER(cuMemsetD8_v2, NEEDS_CONTEXT);
  return fill((struct fill){dst, value, 1, n}, NULL, true);
}

CUresult cuMemsetD32_v2(CUdeviceptr dst, unsigned int value, size_t n) {
  ENTER(cuMemsetD32_v2, NEEDS_CONTEXT);
  return fill((struct fill){dst, value, 4, n}, NULL, true);
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER(cuMemGetInfo_v2, NEEDS_CONTEXT);
  REQUIRE(free != NULL && total != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  *total = si_device_memory();
  *free = *total - si_current()->used;
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr ptr) {
  ENTER(cuMemGetAddressRange_v2, NEEDS_CONTEXT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct mapping *mapping = si_mapping(ptr);
  struct block *block = find_block(ptr);
  CHECK(mapping != NULL || block != NULL, CUDA_ERROR_NOT_FOUND);
  if (base != NULL) {
    *base = mapping != NULL ? mapping->address : block->address;
  }
  if (size != NULL) {
    *size = mapping != NULL ? mapping->size : block->size;
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static CUresult describe_pointer(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  struct mapping *mapping = si_mapping(ptr);
  struct reservation *reservation = si_reservation(ptr);
  struct block *block = find_block(ptr);
  if (attribute == CU_POINTER_ATTRIBUTE_MAPPED) {
    *(bool *)data = mapping != NULL || block != NULL;
    return CUDA_SUCCESS;
  }
  REQUIRE(mapping != NULL || block != NULL || reservation != NULL, CUDA_ERROR_INVALID_VALUE);
  bool device = block == NULL || block->kind == BLOCK_POOL;
  switch ((int)attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      /* Memory of the VMM kind belongs to no context. */
      *(CUcontext *)data = block != NULL ? block->ctx : NULL;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *(unsigned *)data = device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *(CUdeviceptr *)data = ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      REQUIRE(!device, CUDA_ERROR_INVALID_VALUE);
      *(void **)data = (void *)(uintptr_t)ptr;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *(int *)data = block != NULL ? block->ctx->device
          : mapping != NULL        ? mapping->physical->prop.location.id
                                   : -2;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *(bool *)data = false;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *(CUdeviceptr *)data = block != NULL ? block->address
          : mapping != NULL                ? mapping->address
                                           : reservation->address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *(size_t *)data = block != NULL ? block->size
          : mapping != NULL           ? mapping->size
                                      : reservation->size;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *(unsigned long long *)data =
          mapping != NULL ? (unsigned long long)mapping->physical->prop.requestedHandleTypes : 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

/* For RDMA, which the stand-in's devices can not do. */
CUresult cuMemGetHandleForAddressRange(void *handle, CUdeviceptr ptr, size_t size,
    CUmemRangeHandleType handleType, unsigned long long flags) {
  ENTER(cuMemGetHandleForAddressRange, NEEDS_CONTEXT);
  REQUIRE(handle != NULL && ptr != 0 && size > 0 && flags == 0
          && handleType == CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
      CUDA_ERROR_INVALID_VALUE);
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  ENTER(cuPointerGetAttribute, NEEDS_CONTEXT);
  REQUIRE(data != NULL, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  CUresult result = describe_pointer(data, attribute, ptr);
  pthread_mutex_unlock(&si_lock);
  return result;
}

/*
 * Multicast objects: created, told their devices, bound to memory. What is written through one
 * reaches only its own memory: the stand-in checks the calls, not NVLink.
 */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include "cuda_memory.h"
#include <sys/mman.h>
#include <unistd.h>

#define RECOMMENDED ((size_t)512 << 20)

static CUresult check_prop(const CUmulticastObjectProp *prop) {
  REQUIRE(prop != NULL && prop->numDevices > 0 && (int)prop->numDevices <= si_device_count()
          && prop->size > 0 && prop->flags == 0,
      CUDA_ERROR_INVALID_VALUE);
  return CUDA_SUCCESS;
}

CUresult cuMulticastGetGranularity(size_t *granularity, const CUmulticastObjectProp *prop,
    CUmulticastGranularity_flags option) {
  ENTER(cuMulticastGetGranularity, NEEDS_INIT);
  REQUIRE(granularity != NULL && (unsigned)option <= 1, CUDA_ERROR_INVALID_VALUE);
  CUresult result = check_prop(prop);
  REQUIRE(result == CUDA_SUCCESS, result);
  *granularity = option == CU_MULTICAST_GRANULARITY_MINIMUM ? GRANULARITY : RECOMMENDED;
  return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *mcHandle,
    const CUmulticastObjectProp *prop) {
  ENTER(cuMulticastCreate, NEEDS_INIT);
  REQUIRE(mcHandle != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = check_prop(prop);
  REQUIRE(result == CUDA_SUCCESS, result);
  REQUIRE(prop->size % GRANULARITY == 0, CUDA_ERROR_INVALID_VALUE);
  CUmemAllocationProp memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = (CUmemAllocationHandleType)prop->handleTypes,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  pthread_mutex_lock(&si_lock);
  int fd = memfd_create("standin-1-0", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)prop->size) == 0, CUDA_ERROR_OPERATING_SYSTEM);
  struct physical *physical = si_physical_add(fd, prop->size, &memory);
  physical->multicast = true;
  physical->team = prop->numDevices;
  *mcHandle = physical->handle;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle mcHandle, CUdevice dev) {
  ENTER(cuMulticastAddDevice, NEEDS_INIT);
  REQUIRE(dev >= 0 && dev < si_device_count(), CUDA_ERROR_INVALID_DEVICE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *object = si_physical(mcHandle);
  CHECK(object != NULL && object->multicast && !(object->devices & (1u << dev))
          && object->added < object->team,
      CUDA_ERROR_INVALID_VALUE);
  object->devices |= 1u << dev;
  object->added++;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* With the lock held. */
static CUresult bind(CUmemGenericAllocationHandle mcHandle, size_t mcOffset, size_t size,
    struct physical *memory) {
  struct physical *object = si_physical(mcHandle);
  REQUIRE(object != NULL && object->multicast && memory != NULL && !memory->multicast
          && size > 0 && size % GRANULARITY == 0 && mcOffset % GRANULARITY == 0
          && mcOffset + size <= object->size,
      CUDA_ERROR_INVALID_VALUE);
  REQUIRE(object->devices & (1u << memory->prop.location.id), CUDA_ERROR_INVALID_DEVICE);
  /* CUDA would wait here until all devices were added. */
  REQUIRE(object->added == object->team, CUDA_ERROR_ILLEGAL_STATE);
  return CUDA_SUCCESS;
}

/* Counts a binding that bind has allowed. */
static void bound(CUmemGenericAllocationHandle mcHandle, const struct physical *memory) {
  si_physical(mcHandle)->bound[memory->prop.location.id]++;
  standin_count("binding", 1);
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
    CUmemGenericAllocationHandle memHandle, size_t memOffset, size_t size,
    unsigned long long flags) {
  ENTER(cuMulticastBindMem, NEEDS_INIT);
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  struct physical *memory = si_physical(memHandle);
  CUresult result = bind(mcHandle, mcOffset, size, memory);
  if (result == CUDA_SUCCESS && memOffset + size > memory->size) {
    result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) {
    bound(mcHandle, memory);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mcHandle, size_t mcOffset,
    CUdeviceptr memptr, size_t size, unsigned long long flags) {
  ENTER(cuMulticastBindAddr, NEEDS_INIT);
  REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
  pthread_mutex_lock(&si_lock);
  struct mapping *mapping = si_mapping(memptr);
  CUresult result =
      bind(mcHandle, mcOffset, size, mapping == NULL ? NULL : mapping->physical);
  if (result == CUDA_SUCCESS) {
    bound(mcHandle, mapping->physical);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset,
    size_t size) {
  ENTER(cuMulticastUnbind, NEEDS_INIT);
  pthread_mutex_lock(&si_lock);
  struct physical *object = si_physical(mcHandle);
  CUresult result = CUDA_SUCCESS;
  CHECK(object != NULL && object->multicast && dev >= 0 && dev < si_device_count()
          && (object->devices & (1u << dev)) && mcOffset + size <= object->size
          && object->bound[dev] > 0,
      CUDA_ERROR_INVALID_VALUE);
  object->bound[dev]--;
  standin_count("binding", -1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

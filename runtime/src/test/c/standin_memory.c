/*
 * Virtual memory management: physical memory is a memfd, an address range a reservation without
 * access, a mapping maps the one into the other. Checks are strict, so that wrong orders are found.
 */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include "cuda_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Room for a fabric handle; the stand-in's is the path of the memory. */
#define FABRIC_BYTES 64

static struct physical *physicals;
static struct mapping *mappings;
static struct reservation *reservations;
static CUmemGenericAllocationHandle last_handle = 0x7f00;

static bool valid_location(const CUmemLocation *location) {
  switch ((int)location->type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
      return location->id >= 0 && location->id < si_device_count();
    case CU_MEM_LOCATION_TYPE_HOST:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
      return true;
    default:
      return false;
  }
}

static bool on_device(const struct physical *physical) {
  return physical->prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

struct physical *si_physical(CUmemGenericAllocationHandle handle) {
  for (struct physical *at = physicals; at != NULL; at = at->next) {
    if (at->handle == handle && at->handles > 0) {
      return at;
    }
  }
  return NULL;
}

static struct physical *by_inode(ino_t inode) {
  for (struct physical *at = physicals; at != NULL; at = at->next) {
    if (at->inode == inode) {
      return at;
    }
  }
  return NULL;
}

struct mapping *si_mapping(CUdeviceptr ptr) {
  for (struct mapping *at = mappings; at != NULL; at = at->next) {
    if (ptr >= at->address && ptr < at->address + at->size) {
      return at;
    }
  }
  return NULL;
}

struct reservation *si_reservation(CUdeviceptr ptr) {
  for (struct reservation *at = reservations; at != NULL; at = at->next) {
    if (ptr >= at->address && ptr < at->address + at->size) {
      return at;
    }
  }
  return NULL;
}

static CUresult check_prop(const CUmemAllocationProp *prop) {
  REQUIRE(prop != NULL && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED
          && prop->win32HandleMetaData == NULL && valid_location(&prop->location),
      CUDA_ERROR_INVALID_VALUE);
  REQUIRE((prop->requestedHandleTypes
              & ~(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                  | (si_fabric() ? CU_MEM_HANDLE_TYPE_FABRIC : 0))) == 0,
      CUDA_ERROR_NOT_SUPPORTED);
  return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
    CUmemAllocationGranularity_flags option) {
  ENTER(cuMemGetAllocationGranularity, NEEDS_INIT);
  REQUIRE(granularity != NULL && (unsigned)option <= 1, CUDA_ERROR_INVALID_VALUE);
  CUresult result = check_prop(prop);
  REQUIRE(result == CUDA_SUCCESS, result);
  *granularity = GRANULARITY;
  return CUDA_SUCCESS;
}

struct physical *si_physical_add(int fd, size_t size, const CUmemAllocationProp *prop) {
  struct physical *physical = calloc(1, sizeof *physical);
  struct stat status;
  fstat(fd, &status);
  physical->handle = ++last_handle;
  physical->fd = fd;
  physical->inode = status.st_ino;
  physical->size = size;
  physical->prop = *prop;
  physical->handles = 1;
  physical->next = physicals;
  physicals = physical;
  standin_count("handle", 1);
  return physical;
}

static void add_reference(struct physical *physical) {
  physical->handles++;
  standin_count("handle", 1);
}

void si_physical_release(struct physical *physical) {
  if (physical->handles > 0 || physical->mapped > 0) {
    return;
  }
  for (struct physical **at = &physicals; *at != NULL; at = &(*at)->next) {
    if (*at == physical) {
      *at = physical->next;
      break;
    }
  }
  if (physical->booked) {
    si_contexts[physical->prop.location.id].used -= physical->size;
    standin_count("memory", -(long)physical->size);
  }
  for (int device = 0; device < MAX_DEVICES; device++) {
    standin_count("binding", -(long)physical->bound[device]);
  }
  close(physical->fd);
  free(physical);
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
    const CUmemAllocationProp *prop, unsigned long long flags) {
  ENTER(cuMemCreate, NEEDS_INIT);
  REQUIRE(handle != NULL && flags == 0 && size > 0 && size % GRANULARITY == 0,
      CUDA_ERROR_INVALID_VALUE);
  CUresult result = check_prop(prop);
  REQUIRE(result == CUDA_SUCCESS, result);
  char name[64];
  bool device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  pthread_mutex_lock(&si_lock);
  CUcontext ctx = &si_contexts[device ? prop->location.id : 0];
  CHECK(!device || ctx->used + size <= si_device_memory(), CUDA_ERROR_OUT_OF_MEMORY);
  /* An importing process reads from the name what the memory is. */
  snprintf(name, sizeof name, "standin-%d-%d", (int)prop->location.type, prop->location.id);
  int fd = memfd_create(name, MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0, CUDA_ERROR_OPERATING_SYSTEM);
  struct physical *physical = si_physical_add(fd, size, prop);
  physical->booked = device;
  if (device) {
    ctx->used += size;
    standin_count("memory", (long)size);
  }
  *handle = physical->handle;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *physical = si_physical(handle);
  CHECK(physical != NULL, CUDA_ERROR_INVALID_VALUE);
  physical->handles--;
  standin_count("handle", -1);
  si_physical_release(physical);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
    unsigned long long flags) {
  ENTER(cuMemAddressReserve, NEEDS_INIT);
  (void)addr;
  REQUIRE(ptr != NULL && flags == 0 && size > 0 && size % GRANULARITY == 0,
      CUDA_ERROR_INVALID_VALUE);
  REQUIRE((alignment & (alignment - 1)) == 0 || alignment == 0, CUDA_ERROR_INVALID_VALUE);
  alignment = alignment < GRANULARITY ? GRANULARITY : alignment;
  size_t whole = size + alignment;
  char *at = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(at != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
  struct reservation *reservation = calloc(1, sizeof *reservation);
  reservation->whole = at;
  reservation->whole_size = whole;
  reservation->address = ((CUdeviceptr)(uintptr_t)at + alignment - 1) & ~(CUdeviceptr)(alignment - 1);
  reservation->size = size;
  pthread_mutex_lock(&si_lock);
  reservation->next = reservations;
  reservations = reservation;
  *ptr = reservation->address;
  standin_count("reservation", 1);
  pthread_mutex_unlock(&si_lock);
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size) {
  ENTER(cuMemAddressFree, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct reservation *reservation = si_reservation(ptr);
  CHECK(reservation != NULL && reservation->address == ptr && reservation->size == size,
      CUDA_ERROR_INVALID_VALUE);
  for (struct mapping *at = mappings; at != NULL; at = at->next) {
    CHECK(at->address < ptr || at->address >= ptr + size, CUDA_ERROR_INVALID_VALUE);
  }
  for (struct reservation **at = &reservations; *at != NULL; at = &(*at)->next) {
    if (*at == reservation) {
      *at = reservation->next;
      break;
    }
  }
  munmap(reservation->whole, reservation->whole_size);
  free(reservation);
  standin_count("reservation", -1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
    unsigned long long flags) {
  ENTER(cuMemMap, NEEDS_INIT);
  REQUIRE(flags == 0 && size > 0 && size % GRANULARITY == 0 && ptr % GRANULARITY == 0
          && offset % GRANULARITY == 0,
      CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *physical = si_physical(handle);
  struct reservation *reservation = si_reservation(ptr);
  CHECK(physical != NULL && offset + size <= physical->size, CUDA_ERROR_INVALID_VALUE);
  CHECK(reservation != NULL && ptr + size <= reservation->address + reservation->size,
      CUDA_ERROR_INVALID_VALUE);
  CHECK(!physical->multicast || physical->added == physical->team, CUDA_ERROR_ILLEGAL_STATE);
  for (struct mapping *at = mappings; at != NULL; at = at->next) {
    CHECK(ptr + size <= at->address || ptr >= at->address + at->size, CUDA_ERROR_INVALID_VALUE);
  }
  CHECK(mmap((void *)(uintptr_t)ptr, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->fd,
            (off_t)offset) != MAP_FAILED,
      CUDA_ERROR_OPERATING_SYSTEM);
  struct mapping *mapping = calloc(1, sizeof *mapping);
  *mapping = (struct mapping){.address = ptr, .size = size, .offset = offset,
      .physical = physical, .next = mappings};
  mappings = mapping;
  physical->mapped++;
  standin_count("mapping", 1);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* Whether whole mappings make up the range without a gap. */
static bool whole_mappings(CUdeviceptr ptr, size_t size) {
  CUdeviceptr at = ptr;
  while (at < ptr + size) {
    struct mapping *mapping = si_mapping(at);
    if (mapping == NULL || mapping->address != at) {
      return false;
    }
    at += mapping->size;
  }
  return at == ptr + size;
}

CUresult cuMemUnmap(CUdeviceptr ptr, size_t size) {
  ENTER(cuMemUnmap, NEEDS_INIT);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(size > 0 && whole_mappings(ptr, size), CUDA_ERROR_INVALID_VALUE);
  for (struct mapping **at = &mappings; *at != NULL;) {
    struct mapping *mapping = *at;
    if (mapping->address >= ptr && mapping->address < ptr + size) {
      *at = mapping->next;
      mmap((void *)(uintptr_t)mapping->address, mapping->size, PROT_NONE,
          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
      mapping->physical->mapped--;
      si_physical_release(mapping->physical);
      free(mapping);
      standin_count("mapping", -1);
    } else {
      at = &mapping->next;
    }
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static void protect(struct mapping *mapping) {
  bool readable = mapping->readers != 0 || mapping->host != 0;
  bool writable = mapping->writers != 0 || mapping->host == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  mprotect((void *)(uintptr_t)mapping->address, mapping->size,
      (readable ? PROT_READ : PROT_NONE) | (writable ? PROT_WRITE : 0));
}

static void set_access(struct mapping *mapping, const CUmemAccessDesc *desc) {
  if (desc->location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
    unsigned bit = 1u << desc->location.id;
    mapping->readers = desc->flags != 0 ? mapping->readers | bit : mapping->readers & ~bit;
    mapping->writers = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        ? mapping->writers | bit : mapping->writers & ~bit;
  } else {
    mapping->host = desc->flags;
  }
  protect(mapping);
}

CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count) {
  ENTER(cuMemSetAccess, NEEDS_INIT);
  REQUIRE(desc != NULL && count > 0, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  CHECK(size > 0 && whole_mappings(ptr, size), CUDA_ERROR_INVALID_VALUE);
  for (size_t i = 0; i < count; i++) {
    CHECK(valid_location(&desc[i].location), CUDA_ERROR_INVALID_DEVICE);
    CHECK(desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE
            || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READ
            || desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        CUDA_ERROR_INVALID_VALUE);
    for (struct mapping *at = mappings; at != NULL; at = at->next) {
      if (at->address >= ptr && at->address < ptr + size) {
        set_access(at, &desc[i]);
      }
    }
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr ptr) {
  ENTER(cuMemGetAccess, NEEDS_INIT);
  REQUIRE(flags != NULL && location != NULL && valid_location(location), CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct mapping *mapping = si_mapping(ptr);
  CHECK(mapping != NULL, CUDA_ERROR_INVALID_VALUE);
  if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
    unsigned bit = 1u << location->id;
    *flags = mapping->writers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        : mapping->readers & bit    ? CU_MEM_ACCESS_FLAGS_PROT_READ
                                    : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  } else {
    *flags = mapping->host;
  }
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemExportToShareableHandle(void *shareableHandle, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType handleType, unsigned long long flags) {
  ENTER(cuMemExportToShareableHandle, NEEDS_INIT);
  REQUIRE(shareableHandle != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
  bool fabric = handleType == CU_MEM_HANDLE_TYPE_FABRIC && si_fabric();
  REQUIRE(fabric || handleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      CUDA_ERROR_NOT_SUPPORTED);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *physical = si_physical(handle);
  CHECK(physical != NULL && (physical->prop.requestedHandleTypes & handleType),
      CUDA_ERROR_INVALID_VALUE);
  if (fabric) {
    snprintf(shareableHandle, FABRIC_BYTES, "/proc/%d/fd/%d", (int)getpid(), physical->fd);
    goto done;
  }
  int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  CHECK(fd >= 0, CUDA_ERROR_OPERATING_SYSTEM);
  memcpy(shareableHandle, &fd, sizeof fd);
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

static CUresult import(CUmemGenericAllocationHandle *handle, int fd) {
  char link[64];
  char name[128] = "";
  int type;
  int id;
  struct stat status;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  REQUIRE(readlink(link, name, sizeof name - 1) > 0
          && sscanf(name, "/memfd:standin-%d-%d", &type, &id) == 2 && fstat(fd, &status) == 0,
      CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *physical = by_inode(status.st_ino);
  if (physical != NULL) {
    add_reference(physical);
  } else {
    CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {(CUmemLocationType)type, id}};
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    CHECK(own >= 0, CUDA_ERROR_OPERATING_SYSTEM);
    physical = si_physical_add(own, (size_t)status.st_size, &prop);
    /* The exporting process has it booked. */
    physical->booked = false;
  }
  *handle = physical->handle;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *osHandle,
    CUmemAllocationHandleType shHandleType) {
  ENTER(cuMemImportFromShareableHandle, NEEDS_INIT);
  REQUIRE(handle != NULL, CUDA_ERROR_INVALID_VALUE);
  bool fabric = shHandleType == CU_MEM_HANDLE_TYPE_FABRIC && si_fabric();
  REQUIRE(fabric || shHandleType == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      CUDA_ERROR_NOT_SUPPORTED);
  /* The descriptor itself is passed, not its address; of a fabric handle the address. */
  if (!fabric) {
    return import(handle, (int)(intptr_t)osHandle);
  }
  int fd = open(osHandle, O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0, CUDA_ERROR_INVALID_VALUE);
  CUresult result = import(handle, fd);
  close(fd);
  return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr) {
  ENTER(cuMemRetainAllocationHandle, NEEDS_INIT);
  REQUIRE(handle != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct mapping *mapping = si_mapping((CUdeviceptr)(uintptr_t)addr);
  CHECK(mapping != NULL, CUDA_ERROR_INVALID_VALUE);
  add_reference(mapping->physical);
  *handle = mapping->physical->handle;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
    CUmemGenericAllocationHandle handle) {
  ENTER(cuMemGetAllocationPropertiesFromHandle, NEEDS_INIT);
  REQUIRE(prop != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = CUDA_SUCCESS;
  pthread_mutex_lock(&si_lock);
  struct physical *physical = si_physical(handle);
  CHECK(physical != NULL, CUDA_ERROR_INVALID_VALUE);
  *prop = physical->prop;
done:
  pthread_mutex_unlock(&si_lock);
  return result;
}

int standin_memory(const void *ptr, int *fd, size_t *offset, size_t *size, int *device) {
  pthread_mutex_lock(&si_lock);
  struct mapping *mapping = si_mapping((CUdeviceptr)(uintptr_t)ptr);
  if (mapping != NULL) {
    *fd = mapping->physical->fd;
    *offset = mapping->offset + (size_t)((CUdeviceptr)(uintptr_t)ptr - mapping->address);
    *size = mapping->size - (size_t)((CUdeviceptr)(uintptr_t)ptr - mapping->address);
    *device = on_device(mapping->physical) ? mapping->physical->prop.location.id : -1;
  }
  pthread_mutex_unlock(&si_lock);
  return mapping != NULL;
}

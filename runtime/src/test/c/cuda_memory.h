/* What the files about memory share. */
#ifndef CUDA_MEMORY_H
#define CUDA_MEMORY_H

#include "cuda_internal.h"
#include <sys/types.h>

/* Physical memory; lives while it has handles or mappings. */
struct physical {
  struct physical *next;
  CUmemGenericAllocationHandle handle;
  int fd;
  ino_t inode;
  size_t size;
  CUmemAllocationProp prop;
  int handles;
  int mapped;
  bool booked;
  /* For multicast objects: how many devices belong to it, which were added. */
  bool multicast;
  unsigned team;
  unsigned added;
  unsigned devices;
  unsigned bound[MAX_DEVICES];
};

struct reservation {
  struct reservation *next;
  CUdeviceptr address;
  size_t size;
  void *whole;
  size_t whole_size;
};

struct mapping {
  struct mapping *next;
  CUdeviceptr address;
  size_t size;
  size_t offset;
  struct physical *physical;
  /* Bits of the devices with access, and the host's flags. */
  unsigned readers;
  unsigned writers;
  CUmemAccess_flags host;
};

/* Called with the lock held. */
struct physical *si_physical(CUmemGenericAllocationHandle handle);
struct physical *si_physical_add(int fd, size_t size, const CUmemAllocationProp *prop);
void si_physical_release(struct physical *physical);
struct mapping *si_mapping(CUdeviceptr ptr);
struct reservation *si_reservation(CUdeviceptr ptr);

#endif

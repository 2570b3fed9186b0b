/*
 * Control of the stand-ins, for tests: counters, faults, what is alive; and the calls by which the
 * stand-in for libnccl puts work on the streams of the stand-in for libcuda. The state lies in
 * libcuda.so.1; libnccl.so.2 is linked to it.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include "cuda_abi.h"

/* Kinds of faults. */
enum standin_fault_kind {
  STANDIN_NONE = 0,
  /* The call returns `value`, without doing anything. */
  STANDIN_ERROR = 1,
  /* The call, or the operation on the stream, takes `value` milliseconds more. */
  STANDIN_DELAY = 2,
  /* An operation or an initialisation waits until its communicator is aborted; any other call
     waits until standin_reset. */
  STANDIN_HANG = 3,
  /* The communicator's asynchronous error becomes `value`, and the operation hangs, as with a
     broken network. Other calls: as STANDIN_ERROR. */
  STANDIN_ASYNC = 4,
  /* The context gets the sticky CUDA error `value`: every later call returns it. */
  STANDIN_STICKY = 5
};

#pragma GCC visibility push(default)

/*
 * Makes the n-th call from now of a function fail; n = 0 means every call. The name may be followed
 * by "@rank", so that only calls for that rank (NCCL) or device (CUDA) count.
 * Returns 0, or -1 when there are too many faults.
 */
int standin_fault(const char *function, int nth_call, int kind, long value);

/* Forgets faults and counters, ends what hangs by a fault of a call. Objects stay. */
void standin_reset(void);

/* How often a function has been called since the start or the last reset. */
long standin_calls(const char *function);

/*
 * How many objects live: memory (bytes on all devices), handle, mapping, reservation, pinned
 * (bytes), stream, event, graph, exec, module, context, comm, window, registration, binding (of
 * multicast), devcomm. -1: no such.
 */
long standin_live(const char *what);

/* Gives a device's context a sticky error, as an illegal access of a kernel would. */
void standin_break(int device, int error);

/*
 * Adds a kernel: cuModuleGetFunction finds it by its name. `sizes` are the sizes of its parameters.
 * The function is called once for the grid, with pointers to the parameters as cuLaunchKernel takes
 * them, and with the numbers of blocks and threads.
 */
typedef void (*standin_kernel_fn)(void **params, const unsigned grid[3], const unsigned block[3]);
int standin_kernel(const char *name, standin_kernel_fn fn, int params, const size_t *sizes);

/* From here on: for the stand-in of libnccl. */

struct standin_site {
  const char *name;
  struct standin_site *next;
  long calls;
  int known;
};

struct standin_action {
  int kind;
  long value;
};

/* Counts a call, and says which fault is due. */
struct standin_action standin_call(struct standin_site *site, int rank);

/* Adds to the count of a kind of objects. */
void standin_count(const char *what, long delta);

/* Sleeps, or waits until standin_reset. */
void standin_sleep(long milliseconds);
void standin_hang(void);

/* One after another: works enqueued with the same order, on whichever streams. */
struct standin_order;
struct standin_order *standin_order_create(void);
void standin_order_destroy(struct standin_order *order);
/* Whether a work of it is not done yet; of works in graphs nothing is known. */
int standin_order_pending(struct standin_order *order);

/*
 * Runs a function in stream order; while the stream is capturing, adds a kernel node that runs it at
 * each launch. `release` is called once when the work is done and its graphs are gone.
 */
CUresult standin_enqueue(CUstream stream, struct standin_order *order, void (*run)(void *),
    void *data, void (*release)(void *));

/* Makes a stream wait for what another has so far, captured or not. */
CUresult standin_follow(CUstream stream, CUstream other);

/* The device of the current context; makes the context of device 0 current when there is none. */
CUresult standin_device(int *device);

/* The context's sticky error, or 0. */
int standin_broken(int device);

/* Whether a device may access a range, as far as it is known as device memory. */
int standin_accessible(const void *ptr, size_t size, int device);

/* The memory behind an address: its descriptor and the address' offset there; 0 when unknown. */
int standin_memory(const void *ptr, int *fd, size_t *offset, size_t *size, int *device);

/* Books bytes on a device; CUDA_ERROR_OUT_OF_MEMORY when it has not as many. */
CUresult standin_book(int device, long bytes);

#pragma GCC visibility pop

#endif

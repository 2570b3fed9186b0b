/* What the package io.nccl4j.bindings.nccl is generated from. */

/* nccl.h declares these without a prototype, which C takes for "any arguments". */
#define ncclGroupStart() ncclGroupStart(void)
#define ncclGroupEnd() ncclGroupEnd(void)
#include <nccl.h>
#undef ncclGroupStart
#undef ncclGroupEnd

/*
 * Properties of a communicator, device communicators, and the device pointers of a window. What
 * kernels do with the network is C++, and no part of the structures: it is left out by its guard.
 */
#define _NCCL_DEVICE_GIN_SESSION_H_
#include <nccl_device/impl/comm__types.h>

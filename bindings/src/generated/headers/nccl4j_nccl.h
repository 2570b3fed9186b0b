/* What the package io.nccl4j.bindings.nccl is generated from. */

/* nccl.h declares these without a prototype, which C takes for "any arguments". */
#define ncclGroupStart() ncclGroupStart(void)
#define ncclGroupEnd() ncclGroupEnd(void)
#include <nccl.h>
#undef ncclGroupStart
#undef ncclGroupEnd

/* Properties of a communicator, and the device pointers of a window. */
#include <nccl_device/core.h>

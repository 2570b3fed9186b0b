/* What the package io.nccl4j.bindings.cuda is generated from. */

/* Lets cuda.h declare every version of a function by its own name, instead of renaming to the newest. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

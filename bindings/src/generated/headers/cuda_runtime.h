/* The one type of CUDA's runtime API that nccl.h needs. NCCL's stream is the driver's CUstream. */
#ifndef NCCL4J_CUDA_RUNTIME_H
#define NCCL4J_CUDA_RUNTIME_H
#include <stddef.h>
#define CUDART_VERSION 13000
typedef struct CUstream_st *cudaStream_t;
#endif

/* The version of NCCL's headers that a module was compiled with, for who loads it. */
extern "C" __device__ const unsigned int nccl4j_nccl_headers = NCCL_VERSION_CODE;

/*
 * Compares our declarations with the real headers, where there are some: gcc refuses a prototype
 * that differs from an earlier one. Only compiled, with -DSTANDIN_REAL_HEADERS and the directories
 * of cuda.h and nccl.h; then without, so that the same sizes hold for our types.
 */
#include <stddef.h>
#ifdef STANDIN_REAL_HEADERS
#include <cuda.h>
#include <nccl.h>
/* What kernels do with the network is C++, and no part of the structures. */
#define _NCCL_DEVICE_GIN_SESSION_H_
#include <nccl_device/impl/comm__types.h>
#endif
#include "nccl_abi.h"

#define SIZE(type, bytes) _Static_assert(sizeof(type) == bytes, #type)
#define AT(type, field, offset) _Static_assert(offsetof(type, field) == offset, #type "." #field)
#define IS(constant, value) _Static_assert((long long)constant == value, #constant)

SIZE(CUresult, 4);
SIZE(CUdevice, 4);
SIZE(CUdeviceptr, 8);
SIZE(CUuuid, 16);
SIZE(CUmemGenericAllocationHandle, 8);
SIZE(CUmemLocation, 8);
AT(CUmemLocation, id, 4);
SIZE(CUmemAllocationProp, 32);
AT(CUmemAllocationProp, requestedHandleTypes, 4);
AT(CUmemAllocationProp, location, 8);
AT(CUmemAllocationProp, win32HandleMetaData, 16);
AT(CUmemAllocationProp, allocFlags, 24);
AT(CUmemAllocationProp, allocFlags.gpuDirectRDMACapable, 25);
SIZE(CUmemAccessDesc, 12);
AT(CUmemAccessDesc, flags, 8);
SIZE(CUmulticastObjectProp, 32);
AT(CUmulticastObjectProp, size, 8);
AT(CUmulticastObjectProp, handleTypes, 16);
AT(CUmulticastObjectProp, flags, 24);
SIZE(CUgraphExecUpdateResultInfo, 24);
AT(CUgraphExecUpdateResultInfo, errorNode, 8);
SIZE(CUipcMemHandle, 64);
SIZE(CUipcEventHandle, 64);

IS(CUDA_ERROR_OUT_OF_MEMORY, 2);
IS(CUDA_ERROR_INVALID_CONTEXT, 201);
IS(CUDA_ERROR_INVALID_HANDLE, 400);
IS(CUDA_ERROR_ILLEGAL_STATE, 401);
IS(CUDA_ERROR_NOT_FOUND, 500);
IS(CUDA_ERROR_NOT_READY, 600);
IS(CUDA_ERROR_ILLEGAL_ADDRESS, 700);
IS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704);
IS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, 705);
IS(CUDA_ERROR_CONTEXT_IS_DESTROYED, 709);
IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712);
IS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713);
IS(CUDA_ERROR_NOT_PERMITTED, 800);
IS(CUDA_ERROR_NOT_SUPPORTED, 801);
IS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900);
IS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901);
IS(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902);
IS(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903);
IS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904);
IS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905);
IS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906);
IS(CUDA_ERROR_CAPTURED_EVENT, 907);
IS(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908);
IS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 910);
IS(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16);
IS(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75);
IS(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102);
IS(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103);
IS(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 128);
IS(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 132);
IS(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2);
IS(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9);
IS(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12);
IS(CU_POINTER_ATTRIBUTE_MAPPED, 13);
IS(CU_MEMORYTYPE_DEVICE, 2);
IS(CU_EVENT_DISABLE_TIMING, 2);
IS(CU_STREAM_NON_BLOCKING, 1);
IS(CU_STREAM_CAPTURE_MODE_RELAXED, 2);
IS(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2);
IS(CU_GRAPH_NODE_TYPE_MEM_FREE, 11);
IS(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, 2);
IS(CU_MEM_HANDLE_TYPE_FABRIC, 8);
IS(CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 4);
IS(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3);
IS(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2);

SIZE(ncclUniqueId, 128);
SIZE(ncclConfig_t, 96);
AT(ncclConfig_t, version, 12);
AT(ncclConfig_t, blocking, 16);
AT(ncclConfig_t, minCTAs, 24);
AT(ncclConfig_t, netName, 32);
AT(ncclConfig_t, splitShare, 40);
AT(ncclConfig_t, trafficClass, 44);
AT(ncclConfig_t, commName, 48);
AT(ncclConfig_t, collnetEnable, 56);
AT(ncclConfig_t, CTAPolicy, 60);
AT(ncclConfig_t, shrinkShare, 64);
AT(ncclConfig_t, nvlsCTAs, 68);
AT(ncclConfig_t, nChannelsPerNetPeer, 72);
AT(ncclConfig_t, nvlinkCentricSched, 76);
AT(ncclConfig_t, graphUsageMode, 80);
AT(ncclConfig_t, numRmaCtx, 84);
AT(ncclConfig_t, maxP2pPeers, 88);
AT(ncclConfig_t, graphStreamOrdering, 92);
SIZE(ncclSimInfo_t, 24);
AT(ncclSimInfo_t, estimatedTime, 16);
SIZE(ncclWaitSignalDesc_t, 16);
SIZE(struct ncclCommProperties, 56);
AT(struct ncclCommProperties, multimemSupport, 33);
AT(struct ncclCommProperties, hostRmaSupport, 44);
SIZE(ncclTeam_t, 12);
SIZE(ncclDevCommRequirements_t, 96);
AT(ncclDevCommRequirements_t, lsaMultimem, 32);
AT(ncclDevCommRequirements_t, lsaBarrierCount, 40);
AT(ncclDevCommRequirements_t, ginConnectionType, 72);
AT(ncclDevCommRequirements_t, worldGinBarrierCount, 88);
AT(ncclDevCommRequirements_t, ginVaSignalsRequired, 93);
SIZE(ncclDevComm_t, 240);
AT(ncclDevComm_t, rank, 8);
AT(ncclDevComm_t, lsaSize, 24);
AT(ncclDevComm_t, resourceWindow, 40);
AT(ncclDevComm_t, resourceWindow_inlined.lsaFlatBase, 56);
AT(ncclDevComm_t, lsaMultimem, 120);
AT(ncclDevComm_t, lsaBarrier, 128);
AT(ncclDevComm_t, ginContextCount, 200);
AT(ncclDevComm_t, worldGinBarrier, 232);
SIZE(ncclRedOp_t, 4);
IS(ncclRemoteError, 6);
IS(ncclInProgress, 7);
IS(ncclTimeout, 8);
IS(ncclNumTypes, 12);
IS(ncclBfloat16, 9);
IS(ncclFloat8e5m2, 11);
IS(ncclNumOps, 5);
IS(ncclMaxRedOp, 0x7fffffff);
IS(ncclStatGpuMemTotal, 3);
IS(NCCL_SPLIT_NOCOLOR, -1);
IS(NCCL_API_MAGIC, 0xcafebeef);

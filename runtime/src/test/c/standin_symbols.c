/* cuGetProcAddress: which function has which name since which driver; and what must not be called. */
#include "cuda_internal.h"
#include <string.h>

struct symbol {
  const char *name;
  int since;
  void *function;
};

/* A function of the first row of a name is the oldest; later rows are its newer versions. */
#define S(name, since) {#name, since, (void *)(uintptr_t)name}
#define V(base, since, function) {#base, since, (void *)(uintptr_t)function}

/* The versions in which CUDA got the functions, where they are newer than what all drivers have. */
static const struct symbol symbols[] = {
    S(cuInit, 2000),
    S(cuDriverGetVersion, 2020),
    S(cuGetErrorName, 6000),
    S(cuGetErrorString, 6000),
    V(cuGetProcAddress, 12000, cuGetProcAddress_v2),
    S(cuDeviceGet, 2000),
    S(cuDeviceGetCount, 2000),
    S(cuDeviceGetName, 2000),
    V(cuDeviceTotalMem, 3020, cuDeviceTotalMem_v2),
    S(cuDeviceGetAttribute, 2000),
    V(cuDeviceGetUuid, 11040, cuDeviceGetUuid_v2),
    S(cuDeviceCanAccessPeer, 4000),
    S(cuDeviceGetPCIBusId, 4010),
    S(cuDeviceGetByPCIBusId, 4010),
    S(cuDevicePrimaryCtxRetain, 7000),
    V(cuDevicePrimaryCtxRelease, 11000, cuDevicePrimaryCtxRelease_v2),
    V(cuDevicePrimaryCtxReset, 11000, cuDevicePrimaryCtxReset_v2),
    V(cuDevicePrimaryCtxSetFlags, 11000, cuDevicePrimaryCtxSetFlags_v2),
    S(cuDevicePrimaryCtxGetState, 7000),
    S(cuCtxSetCurrent, 4000),
    S(cuCtxGetCurrent, 4000),
    V(cuCtxPushCurrent, 4000, cuCtxPushCurrent_v2),
    V(cuCtxPopCurrent, 4000, cuCtxPopCurrent_v2),
    S(cuCtxSynchronize, 2000),
    S(cuCtxGetDevice, 2000),
    S(cuCtxGetApiVersion, 3020),
    S(cuCtxGetStreamPriorityRange, 5050),
    S(cuCtxEnablePeerAccess, 4000),
    S(cuCtxDisablePeerAccess, 4000),
    S(cuMemGetAllocationGranularity, 10020),
    S(cuMemCreate, 10020),
    S(cuMemRelease, 10020),
    S(cuMemAddressReserve, 10020),
    S(cuMemAddressFree, 10020),
    S(cuMemMap, 10020),
    S(cuMemUnmap, 10020),
    S(cuMemSetAccess, 10020),
    S(cuMemGetAccess, 10020),
    S(cuMemExportToShareableHandle, 10020),
    S(cuMemImportFromShareableHandle, 10020),
    S(cuMemRetainAllocationHandle, 11000),
    S(cuMemGetAllocationPropertiesFromHandle, 10020),
    V(cuMemGetInfo, 3020, cuMemGetInfo_v2),
    V(cuMemGetAddressRange, 3020, cuMemGetAddressRange_v2),
    S(cuMemGetHandleForAddressRange, 11070),
    S(cuPointerGetAttribute, 4000),
    S(cuMulticastCreate, 12010),
    S(cuMulticastAddDevice, 12010),
    S(cuMulticastBindMem, 12010),
    S(cuMulticastBindAddr, 12010),
    S(cuMulticastUnbind, 12010),
    S(cuMulticastGetGranularity, 12010),
    S(cuMemHostAlloc, 2020),
    S(cuMemFreeHost, 2000),
    V(cuMemHostRegister, 6050, cuMemHostRegister_v2),
    S(cuMemHostUnregister, 4000),
    V(cuMemHostGetDevicePointer, 3020, cuMemHostGetDevicePointer_v2),
    S(cuMemcpy, 4000),
    S(cuMemcpyAsync, 4000),
    V(cuMemcpyHtoD, 3020, cuMemcpyHtoD_v2),
    V(cuMemcpyDtoH, 3020, cuMemcpyDtoH_v2),
    V(cuMemcpyDtoD, 3020, cuMemcpyDtoD_v2),
    V(cuMemcpyHtoDAsync, 3020, cuMemcpyHtoDAsync_v2),
    V(cuMemcpyDtoHAsync, 3020, cuMemcpyDtoHAsync_v2),
    V(cuMemcpyDtoDAsync, 3020, cuMemcpyDtoDAsync_v2),
    S(cuMemsetD8Async, 3020),
    S(cuMemsetD16Async, 3020),
    S(cuMemsetD32Async, 3020),
    V(cuMemsetD8, 3020, cuMemsetD8_v2),
    V(cuMemsetD32, 3020, cuMemsetD32_v2),
    S(cuMemAllocAsync, 11020),
    S(cuMemFreeAsync, 11020),
    V(cuMemAlloc, 3020, cuMemAlloc_v2),
    V(cuMemFree, 3020, cuMemFree_v2),
    S(cuIpcGetMemHandle, 4010),
    V(cuIpcOpenMemHandle, 11000, cuIpcOpenMemHandle_v2),
    S(cuIpcCloseMemHandle, 4010),
    S(cuIpcGetEventHandle, 4010),
    S(cuIpcOpenEventHandle, 4010),
    S(cuStreamCreate, 2000),
    S(cuStreamCreateWithPriority, 5050),
    V(cuStreamDestroy, 4000, cuStreamDestroy_v2),
    S(cuStreamSynchronize, 2000),
    S(cuStreamQuery, 2000),
    S(cuStreamWaitEvent, 3020),
    S(cuStreamGetCtx, 9020),
    S(cuStreamGetPriority, 5050),
    S(cuStreamGetFlags, 5050),
    S(cuStreamGetId, 12000),
    S(cuLaunchHostFunc, 10000),
    S(cuEventCreate, 2000),
    V(cuEventDestroy, 4000, cuEventDestroy_v2),
    S(cuEventRecord, 2000),
    S(cuEventRecordWithFlags, 11010),
    S(cuEventQuery, 2000),
    S(cuEventSynchronize, 2000),
    S(cuEventElapsedTime, 2000),
    V(cuEventElapsedTime, 12080, cuEventElapsedTime_v2),
    V(cuStreamBeginCapture, 10010, cuStreamBeginCapture_v2),
    S(cuStreamEndCapture, 10000),
    S(cuStreamIsCapturing, 10000),
    V(cuStreamGetCaptureInfo, 11030, cuStreamGetCaptureInfo_v2),
    S(cuThreadExchangeStreamCaptureMode, 10010),
    S(cuGraphCreate, 10000),
    S(cuGraphDestroy, 10000),
    S(cuGraphClone, 10000),
    S(cuGraphGetNodes, 10000),
    S(cuGraphDebugDotPrint, 11030),
    S(cuGraphNodeGetType, 10000),
    S(cuGraphInstantiateWithFlags, 11040),
    V(cuGraphInstantiate, 12000, cuGraphInstantiateWithFlags),
    S(cuGraphLaunch, 10000),
    S(cuGraphUpload, 11010),
    V(cuGraphExecUpdate, 12000, cuGraphExecUpdate_v2),
    S(cuGraphExecDestroy, 10000),
    S(cuModuleLoadData, 2000),
    S(cuModuleLoadDataEx, 2010),
    S(cuModuleUnload, 2000),
    S(cuModuleGetFunction, 2000),
    S(cuFuncGetAttribute, 2020),
    S(cuLaunchKernel, 4000),
};

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status) {
  ENTER(cuGetProcAddress_v2, NEEDS_NOTHING);
  REQUIRE(symbol != NULL && pfn != NULL && flags <= 2, CUDA_ERROR_INVALID_VALUE);
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  *pfn = NULL;
  for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
    if (strcmp(symbols[i].name, symbol) == 0 && symbols[i].since <= si_driver_version()) {
      if (symbols[i].since <= cudaVersion) {
        *pfn = symbols[i].function;
        found = CU_GET_PROC_ADDRESS_SUCCESS;
      } else if (*pfn == NULL) {
        found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
      }
    }
  }
  if (status != NULL) {
    *status = found;
    return CUDA_SUCCESS;
  }
  return found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#define FORBIDDEN(function, ...)                                                                    \
  CUresult function(__VA_ARGS__) {                                                                  \
    ENTER(function, NEEDS_NOTHING);                                                                 \
    return CUDA_ERROR_NOT_PERMITTED;                                                                \
  }

#pragma GCC diagnostic ignored "-Wunused-parameter"
FORBIDDEN(cuMemAlloc_v2, CUdeviceptr *ptr, size_t bytesize)
FORBIDDEN(cuMemFree_v2, CUdeviceptr ptr)
FORBIDDEN(cuIpcGetMemHandle, CUipcMemHandle *handle, CUdeviceptr ptr)
FORBIDDEN(cuIpcOpenMemHandle_v2, CUdeviceptr *ptr, CUipcMemHandle handle, unsigned int flags)
FORBIDDEN(cuIpcCloseMemHandle, CUdeviceptr ptr)
FORBIDDEN(cuIpcGetEventHandle, CUipcEventHandle *handle, CUevent event)
FORBIDDEN(cuIpcOpenEventHandle, CUevent *event, CUipcEventHandle handle)

int cudaMalloc(void **ptr, size_t size) {
  ENTER(cudaMalloc, NEEDS_NOTHING);
  return CUDA_ERROR_NOT_PERMITTED;
}

int cudaFree(void *ptr) {
  ENTER(cudaFree, NEEDS_NOTHING);
  return CUDA_ERROR_NOT_PERMITTED;
}

/* Tests of the stand-in for libcuda. */
#define _GNU_SOURCE
#include "selftest.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

static void test_memory(void) {
  use_device(0);
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUmemGenericAllocationHandle handle;
  CUmemGenericAllocationHandle other;
  CUdeviceptr ptr;
  size_t free_bytes;
  size_t total;
  int fd;
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate(&handle, 4096, &prop, 0));
  FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate(&handle, (size_t)1 << 36, &prop, 0));
  CU(cuMemCreate(&handle, 2 * MB2, &prop, 0));
  CU(cuMemGetInfo_v2(&free_bytes, &total));
  EXPECT(total - free_bytes == 2 * MB2);
  CU(cuMemAddressReserve(&ptr, 2 * MB2, 0, 0, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess(ptr, 2 * MB2, &access, 1));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 4 * MB2, 0, handle, 0));
  CU(cuMemMap(ptr, 2 * MB2, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap(ptr, 2 * MB2, 0, handle, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemcpy(ptr, ptr + MB2, 8));
  CU(cuMemSetAccess(ptr, 2 * MB2, &access, 1));
  *(int *)(uintptr_t)ptr = 42;
  CU(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CU(cuMemImportFromShareableHandle(&other, (void *)(intptr_t)fd,
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  CU(cuMemRelease(other));
  CU(cuMemRelease(handle));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease(handle));
  EXPECT(*(int *)(uintptr_t)ptr == 42);
  CU(cuMemRetainAllocationHandle(&other, (void *)(uintptr_t)ptr));
  CU(cuMemRelease(other));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(ptr, 2 * MB2));
  CU(cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap(ptr, 2 * MB2));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree(ptr, MB2));
  CU(cuMemAddressFree(ptr, 2 * MB2));
  EXPECT(standin_live("memory") == 0 && standin_live("handle") == 0
      && standin_live("reservation") == 0 && standin_live("mapping") == 0);
  FAILS(CUDA_ERROR_NOT_PERMITTED, cuMemAlloc_v2(&ptr, 1));
  EXPECT(standin_calls("cuMemAlloc_v2") == 1);
}

static void noop(void *data) {
  standin_sleep(*(int *)data);
}

static void test_capture_errors(void) {
  use_device(0);
  CUstream a;
  CUstream b;
  CUevent event;
  CUgraph graph;
  int millis = 30;
  CUstreamCaptureStatus status;
  CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  CU(cuEventCreate(&event, 0));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
      cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
  FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture(a, &graph));
  /* Synchronising a capturing stream. */
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize(a));
  CU(cuStreamIsCapturing(a, &status));
  EXPECT(status == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchHostFunc(a, noop, &millis));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  EXPECT(graph == NULL);
  /* Unjoined work; the wrong stream. */
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuEventRecord(event, a));
  CU(cuStreamWaitEvent(b, event, 0));
  CU(cuLaunchHostFunc(b, noop, &millis));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture(a, &graph));
  /* A captured event looked at from outside. */
  FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery(event));
  /* Waiting for what is not captured. */
  CU(cuEventRecord(event, b));
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, cuStreamWaitEvent(a, event, 0));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  /* A global capture forbids even other streams' queries; an exempt thread may. */
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuThreadExchangeStreamCaptureMode(&mode));
  CU(cuEventSynchronize(event));
  CU(cuThreadExchangeStreamCaptureMode(&mode));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuEventQuery(event));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(a, &graph));
  /* A capture ends with its stream. */
  CUstream gone;
  CU(cuStreamCreate(&gone, CU_STREAM_NON_BLOCKING));
  CU(cuStreamBeginCapture_v2(gone, CU_STREAM_CAPTURE_MODE_GLOBAL));
  CU(cuStreamDestroy_v2(gone));
  /* Order between streams, and times. */
  CUevent before;
  float elapsed = 0;
  CU(cuEventCreate(&before, 0));
  CU(cuEventRecord(before, a));
  CU(cuLaunchHostFunc(a, noop, &millis));
  CU(cuEventRecord(event, a));
  FAILS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
  CU(cuStreamWaitEvent(b, event, 0));
  FAILS(CUDA_ERROR_NOT_READY, cuStreamQuery(b));
  CU(cuStreamSynchronize(b));
  CU(cuEventQuery(event));
  CU(cuEventElapsedTime(&elapsed, before, event));
  EXPECT(elapsed >= 29 && elapsed < 5000);
  CU(cuEventDestroy_v2(event));
  FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventQuery(event));
  CU(cuCtxSetCurrent(NULL));
  FAILS(CUDA_ERROR_INVALID_CONTEXT, cuStreamCreate(&a, 0));
}



static void *thread_capture(void *argument) {
  CUgraph graph;
  use_device(0);
  return (void *)(intptr_t)cuStreamEndCapture(argument, &graph);
}

static void test_capture_threads(void) {
  use_device(0);
  CUstream a;
  CUstream blocking;
  CUgraph graph;
  pthread_t thread;
  void *code;
  CU(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  CU(cuStreamCreate(&blocking, 0));
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  pthread_create(&thread, NULL, thread_capture, a);
  pthread_join(thread, &code);
  EXPECT((intptr_t)code == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  CU(cuStreamEndCapture(a, &graph));
  CU(cuGraphDestroy(graph));
  CU(cuStreamBeginCapture_v2(a, CU_STREAM_CAPTURE_MODE_RELAXED));
  pthread_create(&thread, NULL, thread_capture, a);
  pthread_join(thread, &code);
  EXPECT(code == NULL);
  /* The legacy stream would wait for a capturing blocking stream. */
  CU(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, cuStreamSynchronize(NULL));
  FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture(blocking, &graph));
  CU(cuStreamDestroy_v2(a));
  CU(cuStreamDestroy_v2(blocking));
}

static void add_one(void *data) {
  standin_sleep(5);
  ++*(int *)data;
}

/* The legacy stream and blocking streams wait for each other. */
static void test_legacy_stream(void) {
  use_device(0);
  CUstream blocking;
  int32_t *at = allocate(0, MB2);
  int32_t count = 0;
  CU(cuStreamCreate(&blocking, 0));
  for (int i = 0; i < 5; i++) {
    CU(cuLaunchHostFunc(blocking, add_one, &count));
  }
  CU(cuMemcpyHtoDAsync_v2((CUdeviceptr)(uintptr_t)at, &count, 4, NULL));
  CU(cuLaunchHostFunc(blocking, add_one, &count));
  CU(cuStreamSynchronize(blocking));
  EXPECT(at[0] == 5 && count == 6);
  CU(cuMemsetD32Async((CUdeviceptr)(uintptr_t)at, 7, 3, blocking));
  CU(cuMemcpyDtoH_v2(&count, (CUdeviceptr)(uintptr_t)(at + 2), 4));
  EXPECT(count == 7);
  CU(cuStreamDestroy_v2(blocking));
  release(at, MB2);
}

static void twice(void **params, const unsigned grid[3], const unsigned block[3]) {
  int *at = (int *)(uintptr_t)*(CUdeviceptr *)params[0];
  int count = *(int *)params[1];
  for (unsigned i = 0; i < grid[0] * block[0] && (int)i < count; i++) {
    at[i] *= 2;
  }
}

static void test_kernels(void) {
  static const size_t sizes[] = {sizeof(CUdeviceptr), sizeof(int)};
  use_device(0);
  CUmodule module;
  CUfunction function;
  CUgraph graph;
  CUgraph other;
  CUgraphExec exec;
  CUgraphExecUpdateResultInfo info;
  CUstream stream;
  int *at = allocate(0, MB2);
  CUdeviceptr ptr = (CUdeviceptr)(uintptr_t)at;
  int count = 10;
  void *params[] = {&ptr, &count};
  at[9] = 1;
  at[10] = 1;
  EXPECT(standin_kernel("twice", twice, 2, sizes) == 0);
  FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, "nonsense"));
  CU(cuModuleLoadData(&module, "// by hand\n.version 8.0\n.target sm_70\n"));
  FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "thrice"));
  CU(cuModuleGetFunction(&function, module, "twice"));
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
  CU(cuStreamSynchronize(stream));
  EXPECT(at[9] == 2 && at[10] == 1);
  /* In a graph, then with other parameters by an update. */
  CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
  CU(cuStreamEndCapture(stream, &graph));
  CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
  CU(cuGraphLaunch(exec, stream));
  count = 11;
  CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL));
  CU(cuStreamEndCapture(stream, &other));
  CU(cuGraphExecUpdate_v2(exec, other, &info));
  CU(cuGraphLaunch(exec, stream));
  CU(cuStreamSynchronize(stream));
  EXPECT(at[9] == 8 && at[10] == 2);
  CU(cuGraphDestroy(other));
  CU(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CU(cuMemsetD8Async(ptr, 0, 8, stream));
  CU(cuStreamEndCapture(stream, &other));
  FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2(exec, other, &info));
  EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
  CU(cuGraphDestroy(graph));
  CU(cuGraphClone(&graph, other));
  CU(cuGraphDestroy(graph));
  CU(cuGraphDestroy(other));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy(other));
  CU(cuGraphExecDestroy(exec));
  CU(cuModuleUnload(module));
  CU(cuStreamDestroy_v2(stream));
  release(at, MB2);
}

static void test_symbols(void) {
  void *function;
  CUdriverProcAddressQueryResult status;
  CU(cuGetProcAddress_v2("cuMemGetInfo", &function, 12010, 0, &status));
  EXPECT(function == (void *)(uintptr_t)cuMemGetInfo_v2 && status == 0);
  CU(cuGetProcAddress_v2("cuEventElapsedTime", &function, 12010, 0, &status));
  EXPECT(function == (void *)(uintptr_t)cuEventElapsedTime);
  CU(cuGetProcAddress_v2("cuEventElapsedTime", &function, 13000, 0, &status));
  EXPECT(function == (void *)(uintptr_t)cuEventElapsedTime_v2);
  CU(cuGetProcAddress_v2("cuMulticastCreate", &function, 12000, 0, &status));
  EXPECT(function == NULL && status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CU(cuGetProcAddress_v2("cuNothing", &function, 13000, 0, &status));
  EXPECT(function == NULL && status == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  setenv("STANDIN_CUDA_DRIVER", "12000", 1);
  CU(cuGetProcAddress_v2("cuMulticastCreate", &function, 13000, 0, &status));
  EXPECT(function == NULL);
  unsetenv("STANDIN_CUDA_DRIVER");
}

static void test_multicast(void) {
  use_device(0);
  CUmulticastObjectProp prop = {.numDevices = 2, .size = MB2,
      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
  CUmemAllocationProp memory = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
  CUmemGenericAllocationHandle object;
  CUmemGenericAllocationHandle part;
  CUdeviceptr ptr;
  CU(cuMulticastCreate(&object, &prop));
  CU(cuMulticastAddDevice(object, 0));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastAddDevice(object, 0));
  CU(cuMemCreate(&part, MB2, &memory, 0));
  FAILS(CUDA_ERROR_INVALID_DEVICE, cuMulticastBindMem(object, 0, part, 0, MB2, 0));
  CU(cuMemAddressReserve(&ptr, MB2, 0, 0, 0));
  FAILS(CUDA_ERROR_ILLEGAL_STATE, cuMemMap(ptr, MB2, 0, object, 0));
  CU(cuMulticastAddDevice(object, 1));
  CU(cuMulticastBindMem(object, 0, part, 0, MB2, 0));
  CU(cuMemMap(ptr, MB2, 0, object, 0));
  CU(cuMulticastUnbind(object, 1, 0, MB2));
  CU(cuMemUnmap(ptr, MB2));
  CU(cuMemAddressFree(ptr, MB2));
  CU(cuMemRelease(part));
  CU(cuMemRelease(object));
  EXPECT(standin_live("handle") == 0);
}

static void test_host_memory(void) {
  use_device(0);
  void *pinned;
  static char own[8192];
  CUdeviceptr ptr;
  CUstream stream;
  unsigned type;
  CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  CU(cuMemHostAlloc(&pinned, 100, 0));
  CU(cuMemHostGetDevicePointer_v2(&ptr, pinned, 0));
  CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr));
  EXPECT(type == CU_MEMORYTYPE_HOST && standin_live("pinned") == 100);
  CU(cuMemHostRegister_v2(own, sizeof own, 0));
  FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2(own + 8, 8, 0));
  FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister(pinned));
  CU(cuMemHostUnregister(own));
  CU(cuMemFreeHost(pinned));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost(pinned));
  CU(cuMemAllocAsync(&ptr, 1000, stream));
  CU(cuMemsetD8Async(ptr, 1, 1000, stream));
  CU(cuMemFreeAsync(ptr, stream));
  CU(cuStreamSynchronize(stream));
  FAILS(CUDA_ERROR_INVALID_VALUE, cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      ptr));
  CU(cuStreamDestroy_v2(stream));
  EXPECT(standin_live("pinned") == 0 && standin_live("memory") == 0);
}

static void call_cuda(void *data) {
  CUevent event;
  *(int *)data = (int)cuEventCreate(&event, 0);
}

static void test_host_function(void) {
  use_device(0);
  int code = 0;
  CU(cuLaunchHostFunc(NULL, call_cuda, &code));
  CU(cuStreamSynchronize(NULL));
  EXPECT(code == CUDA_ERROR_NOT_PERMITTED);
}

const struct test cuda_tests[] = {
    {"memory", test_memory},
    {"capture", test_capture_errors},
    {"capture-threads", test_capture_threads},
    {"legacy-stream", test_legacy_stream},
    {"kernels", test_kernels},
    {"symbols", test_symbols},
    {"multicast", test_multicast},
    {"host-memory", test_host_memory},
    {"host-function", test_host_function},
    {NULL, NULL},
};

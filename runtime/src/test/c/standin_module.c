/* Modules and kernels: a kernel's name is looked up in a table of C functions. */
#define _GNU_SOURCE
#include "cuda_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODULE_MAGIC 0x4d4f4455
#define MAX_KERNELS 64
#define MAX_PARAMS 16

struct CUmod_st {
  unsigned magic;
};

struct CUfunc_st {
  const char *name;
  standin_kernel_fn fn;
  int params;
  size_t sizes[MAX_PARAMS];
};

/* Kernels that the project has in PTX get their twin in standin_kernels.c; tests can add others. */
static struct CUfunc_st kernels[MAX_KERNELS];

int standin_kernel(const char *name, standin_kernel_fn fn, int params, const size_t *sizes) {
  int result = -1;
  pthread_mutex_lock(&si_lock);
  for (int i = 0; i < MAX_KERNELS && params <= MAX_PARAMS && result != 0; i++) {
    if (kernels[i].name == NULL || strcmp(kernels[i].name, name) == 0) {
      kernels[i].name = kernels[i].name == NULL ? strdup(name) : kernels[i].name;
      kernels[i].fn = fn;
      kernels[i].params = params;
      memcpy(kernels[i].sizes, sizes, (size_t)params * sizeof *sizes);
      result = 0;
    }
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

/* PTX text has a .version directive after comments and blanks; images are ELF or fat binaries. */
static CUresult check_image(const char *image) {
  static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'};
  static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
  REQUIRE(image != NULL, CUDA_ERROR_INVALID_VALUE);
  if (memcmp(image, elf, 4) == 0 || memcmp(image, fatbin, 4) == 0) {
    return CUDA_SUCCESS;
  }
  while (*image == '/' || *image == ' ' || *image == '\n' || *image == '\t' || *image == '\r') {
    image += *image == '/' ? strcspn(image, "\n") : 1;
  }
  REQUIRE(*image == '.', CUDA_ERROR_INVALID_IMAGE);
  return strncmp(image, ".version", 8) == 0 && strstr(image, ".target") != NULL
      ? CUDA_SUCCESS : CUDA_ERROR_INVALID_PTX;
}

static CUresult load(CUmodule *module, const void *image) {
  REQUIRE(module != NULL, CUDA_ERROR_INVALID_VALUE);
  CUresult result = check_image(image);
  REQUIRE(result == CUDA_SUCCESS, result);
  pthread_mutex_lock(&si_lock);
  result = si_unsafe();
  if (result == CUDA_SUCCESS) {
    *module = calloc(1, sizeof **module);
    (*module)->magic = MODULE_MAGIC;
    standin_count("module", 1);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER(cuModuleLoadData, NEEDS_CONTEXT);
  return load(module, image);
}

/* What the compiler has to say of bad PTX, for those who left room for it. */
static void write_log(unsigned count, CUjit_option *options, void **values) {
  char *log = NULL;
  size_t room = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == CU_JIT_ERROR_LOG_BUFFER) {
      log = values[i];
    } else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) {
      room = (size_t)values[i];
    }
  }
  if (log != NULL && room > 0) {
    snprintf(log, room, "ptxas application ptx input, line 1; fatal : Missing .target directive\n");
  }
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
    CUjit_option *options, void **optionValues) {
  ENTER(cuModuleLoadDataEx, NEEDS_CONTEXT);
  REQUIRE(numOptions == 0 || (options != NULL && optionValues != NULL), CUDA_ERROR_INVALID_VALUE);
  CUresult result = load(module, image);
  if (result == CUDA_ERROR_INVALID_PTX) {
    write_log(numOptions, options, optionValues);
  }
  return result;
}

CUresult cuModuleUnload(CUmodule module) {
  ENTER(cuModuleUnload, NEEDS_CONTEXT);
  REQUIRE(module != NULL && module->magic == MODULE_MAGIC, CUDA_ERROR_INVALID_HANDLE);
  module->magic = DEAD_MAGIC;
  standin_count("module", -1);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER(cuModuleGetFunction, NEEDS_CONTEXT);
  REQUIRE(function != NULL && name != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(module != NULL && module->magic == MODULE_MAGIC, CUDA_ERROR_INVALID_HANDLE);
  for (int i = 0; i < MAX_KERNELS; i++) {
    if (kernels[i].name != NULL && strcmp(kernels[i].name, name) == 0) {
      *function = &kernels[i];
      return CUDA_SUCCESS;
    }
  }
  return CUDA_ERROR_NOT_FOUND;
}

static bool is_function(CUfunction f) {
  return f >= kernels && f < kernels + MAX_KERNELS && f->fn != NULL;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER(cuFuncGetAttribute, NEEDS_CONTEXT);
  REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
  REQUIRE(is_function(function), CUDA_ERROR_INVALID_HANDLE);
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024
      : attribute == CU_FUNC_ATTRIBUTE_NUM_REGS                 ? 32
                                                                : 0;
  return CUDA_SUCCESS;
}

struct kernel_call {
  CUfunction function;
  unsigned grid[3];
  unsigned block[3];
  void *params[MAX_PARAMS];
  char values[];
};

static void run_kernel(void *data) {
  struct kernel_call *call = data;
  call->function->fn(call->params, call->grid, call->block);
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
    unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
    unsigned int sharedMemBytes, CUstream handle, void **kernelParams, void **extra) {
  ENTER(cuLaunchKernel, NEEDS_CONTEXT);
  REQUIRE(is_function(f), CUDA_ERROR_INVALID_HANDLE);
  REQUIRE(gridDimX > 0 && gridDimY > 0 && gridDimZ > 0 && blockDimX > 0 && blockDimY > 0
          && blockDimZ > 0 && blockDimX * blockDimY * blockDimZ <= 1024 && sharedMemBytes <= 232448
          && extra == NULL && (f->params == 0 || kernelParams != NULL),
      CUDA_ERROR_INVALID_VALUE);
  size_t bytes = 0;
  for (int i = 0; i < f->params; i++) {
    bytes += f->sizes[i];
  }
  /* Parameters are copied at the call: the caller's memory is its own again afterwards. */
  struct kernel_call *call = calloc(1, sizeof *call + bytes);
  call->function = f;
  memcpy(call->grid, (unsigned[]){gridDimX, gridDimY, gridDimZ}, sizeof call->grid);
  memcpy(call->block, (unsigned[]){blockDimX, blockDimY, blockDimZ}, sizeof call->block);
  char *at = call->values;
  for (int i = 0; i < f->params; i++) {
    memcpy(at, kernelParams[i], f->sizes[i]);
    call->params[i] = at;
    at += f->sizes[i];
  }
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream(handle, &stream);
  if (result == CUDA_SUCCESS && stream->ctx != si_current()) {
    result = CUDA_ERROR_INVALID_HANDLE;
  }
  if (result == CUDA_SUCCESS) {
    result = si_submit(stream, si_op_create(CU_GRAPH_NODE_TYPE_KERNEL, run_kernel, call, free));
  } else {
    free(call);
  }
  pthread_mutex_unlock(&si_lock);
  return result;
}

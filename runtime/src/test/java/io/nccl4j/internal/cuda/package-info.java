/** Tests of the cuda backend, and the libraries that stand in for CUDA and NCCL there. */
package io.nccl4j.internal.cuda;

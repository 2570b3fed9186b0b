/** Native functions of NCCL, the CUDA driver and the C library; made for the runtime alone. */
@SuppressWarnings("module") // the runtime is compiled later and not visible here
module io.nccl4j.bindings {
  exports io.nccl4j.bindings to
      io.nccl4j.runtime;
  exports io.nccl4j.bindings.cuda to
      io.nccl4j.runtime;
  exports io.nccl4j.bindings.nccl to
      io.nccl4j.runtime;
}

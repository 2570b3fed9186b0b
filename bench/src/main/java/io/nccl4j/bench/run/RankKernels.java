package io.nccl4j.bench.run;

import io.nccl4j.InvalidUsageException;
import io.nccl4j.Stream;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.data.Ptx;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DeviceKernel;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.CudaKernel;
import io.nccl4j.cuda.CudaKernel.Dim;
import io.nccl4j.cuda.CudaModule;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclCommunicator.Window;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** One rank's kernels that communicate by themselves; it owns them and their communicator. */
final class RankKernels implements AutoCloseable {
  private static final Pattern HEADERS = Pattern.compile("nccl4j_nccl_headers = (\\d+);");
  private static final Dim THREADS = new Dim(512);

  private final DeviceKernel kernel;
  private final Dim blocks;
  private final Stream stream;
  private final NcclDeviceCommunicator device;
  private final CudaModule module;

  /**
   * Makes the kernels of a rank ready; all ranks call it at the same time.
   *
   * @param blocks of each launch
   * @throws InvalidUsageException if the loaded NCCL is older than the headers that the kernels
   *     were compiled with, or a rank, multicast or the network is out of their reach
   */
  RankKernels(DeviceKernel kernel, int blocks, NcclCommunicator communicator, Stream stream) {
    this.kernel = kernel;
    this.blocks = new Dim(blocks);
    this.stream = stream;
    String ptx = Ptx.read(kernel.way().module());
    NcclDeviceRequirements requirements = kernel.way().requirements(headers(ptx), blocks);
    device = communicator.createDeviceCommunicator(requirements);
    try {
      if (kernel.way().needsLsa() && device.lsaSize() != communicator.nranks()) {
        throw new InvalidUsageException(
            "rank "
                + communicator.rank()
                + " reaches the memory of "
                + device.lsaSize()
                + " of "
                + communicator.nranks()
                + " ranks",
            "use GPUs of one machine or NVLink domain, or omit -D");
      }
      module = CudaDevice.of(communicator.device()).loadModule(ptx);
    } catch (RuntimeException e) {
      device.close();
      throw e;
    }
  }

  /** The version of NCCL's headers that a module was compiled with. */
  static int headers(String ptx) {
    Matcher found = HEADERS.matcher(ptx);
    if (!found.find()) {
      throw new IllegalStateException("the PTX does not name NCCL's headers");
    }
    return Integer.parseInt(found.group(1));
  }

  /**
   * Makes one operation ready.
   *
   * @param send where it finds its data
   * @param sendOffset from where on, in bytes, on all ranks
   */
  PreparedCall prepare(Case size, Window send, long sendOffset, Window recv, long recvOffset) {
    CudaKernel function = module.kernel(kernel.kernel(size.type()));
    Object[] arguments = {send, sendOffset, recv, recvOffset, kernel.count(size), device};
    return stage -> function.launch(stream, blocks, THREADS, 0, arguments);
  }

  @Override
  public void close() {
    Closing.all(List.of(module, device));
  }
}

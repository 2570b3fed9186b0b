/** The API of nccl4j and its backends: {@code host} on CPUs, {@code cuda} on GPUs. */
module io.nccl4j.runtime {
  requires io.nccl4j.bindings;
  requires jdk.net;
  requires org.apache.logging.log4j;
  requires static io.netty.buffer;
  requires static io.netty.codec;
  requires static io.netty.common;
  requires static io.netty.handler;
  requires static io.netty.transport;
  requires static io.netty.transport.classes.epoll;
  requires static io.netty.transport.unix.common;
  requires static java.management;
  requires static jdk.jfr;
  requires static transitive org.jspecify;

  exports io.nccl4j;
  exports io.nccl4j.cuda;
  exports io.nccl4j.diagnose;
  exports io.nccl4j.launch;
  exports io.nccl4j.management;
  exports io.nccl4j.memory;

  uses io.nccl4j.Provider;
  uses io.nccl4j.internal.host.SpanProvider;
  uses io.nccl4j.internal.net.NetworkProvider;
  uses io.nccl4j.internal.spi.BackendProvider;

  provides io.nccl4j.Provider with
      io.nccl4j.internal.core.CoreProvider;
  provides io.nccl4j.internal.host.SpanProvider with
      io.nccl4j.internal.span.SpanJoin;
  provides io.nccl4j.internal.net.NetworkProvider with
      io.nccl4j.internal.net.netty.NettyProvider,
      io.nccl4j.internal.net.ucx.UcxProvider;
  provides io.nccl4j.internal.spi.BackendProvider with
      io.nccl4j.internal.cuda.CudaProvider,
      io.nccl4j.internal.host.HostProvider;
  provides org.apache.logging.log4j.spi.Provider with
      io.nccl4j.internal.core.ErrorsToStderr;
}

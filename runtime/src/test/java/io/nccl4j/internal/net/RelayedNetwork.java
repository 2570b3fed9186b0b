package io.nccl4j.internal.net;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A network of Netty's ports that puts a {@link Relay} between them: the address that a port gives
 * out is one of the relay.
 */
public final class RelayedNetwork implements Network {
  /** Where the TCP port is in the address of one of Netty's ports. */
  private static final int TCP_PORT = 16;

  private final Network network;
  private final Relay relay;
  private final AtomicInteger open = new AtomicInteger();

  /** The same network with a relay before each port. */
  public RelayedNetwork(Network network, Relay relay) {
    this.network = network;
    this.relay = relay;
  }

  @Override
  public String name() {
    return network.name() + " through a relay";
  }

  @Override
  public InetAddress address() {
    return network.address();
  }

  /** How many ports are not closed. */
  public int openPorts() {
    return open.get();
  }

  @Override
  public Port newPort() {
    Port port = network.newPort();
    ByteBuffer address = ByteBuffer.wrap(port.address());
    int own = Short.toUnsignedInt(address.getShort(TCP_PORT));
    try {
      int relayed = relay.to(new InetSocketAddress(network.address(), own)).getPort();
      address.putShort(TCP_PORT, (short) relayed);
    } catch (IOException e) {
      throw new AssertionError(e);
    }
    open.incrementAndGet();
    InvocationHandler handler =
        (proxy, method, arguments) -> {
          if (method.getName().equals("address")) {
            return address.array().clone();
          }
          try {
            Object result = method.invoke(port, arguments);
            if (method.getName().equals("close")) {
              open.decrementAndGet();
            }
            return result;
          } catch (InvocationTargetException e) {
            throw e.getCause();
          }
        };
    return (Port)
        Proxy.newProxyInstance(Port.class.getClassLoader(), new Class<?>[] {Port.class}, handler);
  }

  @Override
  public void close() {
    network.close();
  }
}

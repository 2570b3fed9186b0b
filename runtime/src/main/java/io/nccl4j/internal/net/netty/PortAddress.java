package io.nccl4j.internal.net.netty;

import io.nccl4j.InvalidArgumentException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.UUID;

/**
 * Where a port listens, and who it is: its id (16 bytes), TCP port (2), IP address (4 or 16), all
 * big-endian, and, with TLS, the fingerprint of its certificate (32).
 *
 * @param id tells it from a port that listened there before
 * @param fingerprint empty without TLS
 */
record PortAddress(UUID id, InetSocketAddress socket, byte[] fingerprint) {
  private static final int ID_BYTES = 16;
  private static final int V4_BYTES = 4;
  private static final int V6_BYTES = 16;

  byte[] toBytes() {
    byte[] ip = socket.getAddress().getAddress();
    return ByteBuffer.allocate(ID_BYTES + Short.BYTES + ip.length + fingerprint.length)
        .putLong(id.getMostSignificantBits())
        .putLong(id.getLeastSignificantBits())
        .putShort((short) socket.getPort())
        .put(ip)
        .put(fingerprint)
        .array();
  }

  static PortAddress of(byte[] bytes) {
    int begin = ID_BYTES + Short.BYTES;
    int rest = bytes.length - begin;
    int ip = rest > V6_BYTES ? rest - TlsIdentity.FINGERPRINT_BYTES : rest;
    if (ip != V4_BYTES && ip != V6_BYTES) {
      throw new InvalidArgumentException(
          "these " + bytes.length + " bytes are no address of a Netty port",
          "use the same network provider in all processes");
    }
    ByteBuffer in = ByteBuffer.wrap(bytes);
    UUID id = new UUID(in.getLong(), in.getLong());
    int port = Short.toUnsignedInt(in.getShort());
    try {
      InetAddress address = InetAddress.getByAddress(Arrays.copyOfRange(bytes, begin, begin + ip));
      byte[] fingerprint = Arrays.copyOfRange(bytes, begin + ip, bytes.length);
      return new PortAddress(id, new InetSocketAddress(address, port), fingerprint);
    } catch (UnknownHostException e) {
      throw new IllegalStateException("4 and 16 bytes are addresses", e);
    }
  }
}

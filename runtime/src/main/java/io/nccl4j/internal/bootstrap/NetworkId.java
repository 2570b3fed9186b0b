package io.nccl4j.internal.bootstrap;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.UniqueId;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.util.UUID;

/**
 * What the bytes of a unique id say whose ranks may be on several machines.
 *
 * <pre>
 *   0   6  "NCCL4J"
 *   6   2  version
 *   8  16  name
 *  24  32  secret
 *  56  16  IP address, version 6 or mapped to it
 *  72   2  TCP port
 *  74  50  zeros
 * 124   4  CRC-32 of the 124 bytes before
 * </pre>
 *
 * Numbers are big-endian. It has no text form, because it contains the secret.
 *
 * @param name tells rendezvous at one address apart
 * @param secret what both sides prove to know; not a copy
 * @param address where the rendezvous is served
 */
public record NetworkId(UUID name, byte[] secret, InetSocketAddress address) {
  static final int VERSION = 2;

  private static final int ADDRESS_BYTES = 16;
  private static final int IPV4_BYTES = 4;
  private static final int MAPPED = ADDRESS_BYTES - IPV4_BYTES;

  /** A new id of a rendezvous at this address. */
  static NetworkId create(InetSocketAddress address) {
    ByteBuffer random = ByteBuffer.wrap(RendezvousId.random(2 * Long.BYTES));
    UUID name = new UUID(random.getLong(), random.getLong());
    return new NetworkId(name, RendezvousId.random(IdBytes.SECRET_BYTES), address);
  }

  /**
   * The id that all who know a secret come to by themselves.
   *
   * @param job what tells the rendezvous from others with this secret
   */
  static NetworkId derive(byte[] secret, String job, InetSocketAddress address) {
    ByteBuffer name = ByteBuffer.wrap(Session.hash(secret, "name " + job));
    return new NetworkId(
        new UUID(name.getLong(), name.getLong()), Session.hash(secret, "secret " + job), address);
  }

  /** Whether an id is of this version. */
  static boolean isOne(UniqueId id) {
    byte[] bytes = id.toBytes();
    return IdBytes.areOurs(bytes) && IdBytes.version(bytes) == VERSION;
  }

  /**
   * Reads an id for which {@link #isOne} is true.
   *
   * @throws InvalidArgumentException if it is damaged
   */
  static NetworkId of(UniqueId id) {
    ByteBuffer in = IdBytes.read(id.toBytes(), VERSION);
    UUID name = new UUID(in.getLong(), in.getLong());
    byte[] secret = new byte[IdBytes.SECRET_BYTES];
    in.get(secret);
    byte[] address = new byte[ADDRESS_BYTES];
    in.get(address);
    int port = Short.toUnsignedInt(in.getShort());
    try {
      // The mapped form of an address of version 4 comes back as such.
      return new NetworkId(
          name, secret, new InetSocketAddress(InetAddress.getByAddress(address), port));
    } catch (UnknownHostException e) {
      throw new IllegalStateException("an address of " + address.length + " bytes", e);
    }
  }

  public UniqueId toUniqueId() {
    byte[] ip = address.getAddress().getAddress();
    ByteBuffer out = IdBytes.begin(VERSION, name, secret);
    if (ip.length == IPV4_BYTES) {
      out.put(new byte[MAPPED - Short.BYTES]).putShort((short) -1);
    }
    out.put(ip).putShort((short) address.getPort());
    return UniqueId.ofBytes(IdBytes.end(out));
  }

  /** The address in words. */
  String where() {
    String ip = address.getAddress().getHostAddress();
    return (ip.indexOf(':') < 0 ? ip : "[" + ip + "]") + ":" + address.getPort();
  }

  /** Says nothing of the secret. */
  @Override
  public String toString() {
    return "rendezvous " + name + " at " + where();
  }
}

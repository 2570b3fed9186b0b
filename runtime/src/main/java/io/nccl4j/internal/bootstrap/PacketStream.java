package io.nccl4j.internal.bootstrap;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.Arrays;

/**
 * A TCP connection on which packets of a {@link Session} travel. One thread at a time may send, and
 * one receive; any may close it.
 */
final class PacketStream implements Closeable {
  private static final int LENGTH_OFFSET = 4;

  private final Socket socket;
  private final InputStream in;
  private final OutputStream out;

  /** What has come of the next packet. */
  private byte[] bytes = new byte[Session.HEADER_BYTES];

  private int come;

  PacketStream(Socket socket) throws IOException {
    this.socket = socket;
    socket.setTcpNoDelay(true);
    socket.setKeepAlive(true);
    in = socket.getInputStream();
    out = socket.getOutputStream();
  }

  void send(byte[] packet) throws IOException {
    out.write(packet);
    out.flush();
  }

  /**
   * Waits for a packet. After a timeout it may be called again: what has come is kept.
   *
   * @param mostBytes of its body
   * @throws SocketTimeoutException if it has not come as a whole by the deadline
   * @throws EOFException if the other side has ended
   * @throws IOException if something else came than a packet, or the connection broke
   */
  Session.Packet receive(int mostBytes, Deadline deadline) throws IOException {
    fill(Session.HEADER_BYTES, deadline);
    int length = ByteBuffer.wrap(bytes).getInt(LENGTH_OFFSET);
    if (length < 0 || length > mostBytes) {
      throw new IOException("a packet of " + length + " bytes");
    }
    fill(Session.HEADER_BYTES + length, deadline);
    Session.Packet packet = Session.parse(bytes);
    if (packet == null) {
      throw new IOException("what came is no packet of a rendezvous");
    }
    bytes = new byte[Session.HEADER_BYTES];
    come = 0;
    return packet;
  }

  /** Byte by byte it may not last longer, either. */
  private void fill(int count, Deadline deadline) throws IOException {
    if (bytes.length < count) {
      bytes = Arrays.copyOf(bytes, count);
    }
    while (come < count) {
      long left = deadline.remainingMillis();
      if (left <= 0) {
        throw new SocketTimeoutException("it does not answer");
      }
      socket.setSoTimeout(left > Integer.MAX_VALUE ? 0 : (int) left);
      int read;
      try {
        read = in.read(bytes, come, count - come);
      } catch (SocketTimeoutException e) {
        // The deadline may be a moment later.
        continue;
      }
      if (read < 0) {
        throw new EOFException("it has closed the connection");
      }
      come += read;
    }
  }

  @Override
  public void close() throws IOException {
    socket.close();
  }
}

package io.nccl4j.internal.bootstrap;

import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Errno;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.ReceivedMessage;
import io.nccl4j.bindings.UnixSockets;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.List;
import java.util.UUID;
import org.jspecify.annotations.Nullable;

/**
 * Serves a unique id to one joiner, whom it proves to know the secret, and answers with whatever it
 * is told to. It is rank 0 of 2, the joiner rank 1.
 */
public final class LyingCreator implements AutoCloseable {
  private final RendezvousId id = RendezvousId.create(true);
  private final int listener = UnixSockets.socket(UnixSockets.SOCK_SEQPACKET);

  public LyingCreator() {
    UnixSockets.bindAbstract(listener, id.socketName());
    UnixSockets.listen(listener, 1);
  }

  /** The id to join by. */
  public byte[] id() {
    return id.toBytes();
  }

  /** What a creator could say to a joiner. */
  @FunctionalInterface
  public interface Lie {
    /** The encoded answer, given the name of the joiner's process and the size of its heap. */
    byte[] about(UUID joiner, long heapBytes);
  }

  /** A table of two ranks. */
  public static byte[] table(UUID zero, long zeroBytes, UUID one, long oneBytes, long offset) {
    return new Answer(
            List.of(new Answer.Entry(zero, 0, 1, zeroBytes), new Answer.Entry(one, 0, 1, oneBytes)),
            offset)
        .encode();
  }

  /** That all ranks go on. */
  public static byte[] agreed() {
    return new byte[] {Answer.AGREED};
  }

  /**
   * Lets a joiner in and answers; it gets {@code fd} if there is one. If it says then that it is
   * ready, it hears {@code verdict}, or nothing if that is null.
   */
  public void serve(Lie lie, int fd, byte @Nullable [] verdict) {
    int socket = accept();
    try {
      Session session = new Session(id, true);
      byte[] hello = receive(socket).body();
      byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
      session.nonces(Arrays.copyOfRange(hello, Integer.BYTES, hello.length), nonce);
      send(socket, session.seal(Session.PROOF, nonce));
      ByteBuffer join = ByteBuffer.wrap(receive(socket).body());
      join.getLong();
      Seat seat = Seat.decode(join);
      byte[] answer = lie.about(seat.process(), seat.joiner().heapBytes());
      send(socket, session.seal(Session.ANSWER, whole(answer)));
      if (fd >= 0) {
        ByteBuffer body = ByteBuffer.allocate(2 * Integer.BYTES).putInt(0).putInt(1);
        send(socket, session.seal(Session.FDS, body.array()), fd);
      }
      Session.Packet reply = next(socket);
      if (reply != null && reply.type() == Session.READY && verdict != null) {
        send(socket, session.seal(Session.ANSWER, whole(verdict)));
      }
    } finally {
      Descriptors.close(socket);
    }
  }

  /** The body of an answer that fits one packet. */
  private static byte[] whole(byte[] answer) {
    return ByteBuffer.allocate(2 * Integer.BYTES + answer.length)
        .putInt(answer.length)
        .putInt(0)
        .put(answer)
        .array();
  }

  private int accept() {
    if (Descriptors.poll(listener, Descriptors.POLLIN, 30_000) == 0) {
      throw new AssertionError("nobody came");
    }
    return UnixSockets.accept4(listener, 0);
  }

  private static Session.Packet receive(int socket) {
    Session.Packet packet = next(socket);
    if (packet == null) {
      throw new AssertionError("the joiner hung up");
    }
    return packet;
  }

  /** Null if the joiner has hung up. */
  private static Session.@Nullable Packet next(int socket) {
    if (Descriptors.poll(socket, Descriptors.POLLIN, 30_000) == 0) {
      throw new AssertionError("the joiner says nothing");
    }
    ReceivedMessage message;
    try {
      message = UnixSockets.recvmsg(socket, 20_000, 1, 0);
    } catch (LibcException e) {
      if (e.errno() == Errno.ECONNRESET) {
        return null;
      }
      throw e;
    }
    for (int fd : message.fds()) {
      Descriptors.close(fd);
    }
    return Session.parse(message.bytes());
  }

  private static void send(int socket, byte[] packet, int... fds) {
    try {
      UnixSockets.sendmsg(socket, packet, 0, packet.length, fds, 0);
    } catch (LibcException e) {
      if (e.errno() != Errno.EPIPE) {
        throw e;
      }
      // The joiner has heard enough.
    }
  }

  @Override
  public void close() {
    Descriptors.close(listener);
  }
}

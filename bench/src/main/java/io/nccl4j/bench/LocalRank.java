package io.nccl4j.bench;

import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.ArrayList;
import java.util.List;

/**
 * One rank of this process: its communicator, stream and buffers, and the slices of the case at
 * hand. Used by the thread that drives it.
 *
 * <p>Buffers have the largest size. As in nccl-tests each iteration of a smaller one works on the
 * next part of them, so that caches do not flatter it; the slices are made before the timing.
 */
final class LocalRank implements AutoCloseable {
  private final int index;
  private final Communicator communicator;
  private final List<AutoCloseable> owned = new ArrayList<>();
  private final Stream stream;
  private final DeviceBuffer sendBuffer;
  private final DeviceBuffer recvBuffer;
  private DeviceBuffer[] sends = {};
  private DeviceBuffer[] recvs = {};
  private Operation[] operations = {};

  /**
   * A rank that owns its communicator from now on.
   *
   * @param index its place among the ranks of its thread
   * @param capacity bytes of each buffer
   */
  LocalRank(int index, Communicator communicator, long capacity) {
    this.index = index;
    this.communicator = communicator;
    owned.add(communicator);
    try {
      stream = communicator.device().newStream();
      owned.add(stream);
      sendBuffer = communicator.device().allocate(capacity);
      owned.add(sendBuffer);
      recvBuffer = communicator.device().allocate(capacity);
      owned.add(recvBuffer);
      // Pages come into being at their first use, which should not be a timed one.
      stream.fill(sendBuffer, (byte) 0);
      stream.fill(recvBuffer, (byte) 0);
      stream.synchronize();
    } catch (Throwable e) {
      communicator.abort();
      closeAfter(e);
      throw e;
    }
  }

  private void closeAfter(Throwable failure) {
    try {
      close();
    } catch (RuntimeException e) {
      failure.addSuppressed(e);
    }
  }

  /** Its place among the ranks of its thread, from 0. */
  int index() {
    return index;
  }

  int rank() {
    return communicator.rank();
  }

  Communicator communicator() {
    return communicator;
  }

  Device device() {
    return communicator.device();
  }

  Stream stream() {
    return stream;
  }

  /**
   * Makes the slices for a case.
   *
   * @param iterations at most so many different slices are of use
   */
  void prepare(Case next, boolean inPlace, int iterations) {
    ReduceOp op = TestData.reduceOp(next.op(), rank());
    long size = next.size();
    long positions = size == 0 ? 1 : Math.max(1, sendBuffer.byteSize() / size);
    int slices = (int) Math.min(positions, iterations);
    sends = new DeviceBuffer[slices];
    recvs = new DeviceBuffer[slices];
    operations = new Operation[slices];
    for (int i = 0; i < slices; i++) {
      long shift = size * i;
      if (inPlace) {
        sends[i] = recvBuffer.slice(shift + next.sendInPlaceOffset(rank()), next.sendBytes());
        recvs[i] = recvBuffer.slice(shift + next.recvInPlaceOffset(rank()), next.recvBytes());
      } else {
        sends[i] = sendBuffer.slice(shift, next.sendBytes());
        recvs[i] = recvBuffer.slice(shift, next.recvBytes());
      }
      operations[i] = next.program().prepare(communicator, sends[i], recvs[i], next, op, stream);
    }
  }

  /** What the rank and its process have taken. */
  MemoryUse memory() {
    return MemoryUse.of(communicator, sendBuffer.byteSize() + recvBuffer.byteSize());
  }

  /** How many different slices there are. */
  int positions() {
    return sends.length;
  }

  /** What the operation at a position sends. */
  DeviceBuffer send(int position) {
    return sends[position];
  }

  /** What the operation at a position receives. */
  DeviceBuffer recv(int position) {
    return recvs[position];
  }

  /** Issues a stage of one operation of the case at hand. */
  void launch(int position, int stage) {
    operations[position].issue(stage);
  }

  @Override
  public void close() {
    Closing.all(owned);
  }
}

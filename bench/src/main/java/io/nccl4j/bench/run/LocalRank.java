package io.nccl4j.bench.run;

import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.data.TestData;
import io.nccl4j.bench.options.Setup;
import io.nccl4j.bench.program.Case;
import io.nccl4j.bench.program.DeviceKernel;
import io.nccl4j.bench.program.PreparedCall;
import io.nccl4j.bench.result.MemoryUse;
import io.nccl4j.cuda.CudaDevice;
import io.nccl4j.cuda.NcclCommunicator;
import java.util.ArrayList;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * One rank of this process: its communicator, stream and buffers, and the slices of the case at
 * hand. Used by the thread that drives it.
 *
 * <p>Buffers have the largest size. As in nccl-tests each iteration of a smaller one works on the
 * next part of them, so that caches do not flatter it; the slices are made before the timing.
 */
public final class LocalRank implements AutoCloseable {
  private static final int LARGEST_ELEMENT = 8;

  private final int index;
  private final Communicator world;
  private final Communicator communicator;
  private final int color;
  private final int unaligned;
  private final long capacity;
  private final List<Event> events = new ArrayList<>();
  private final List<AutoCloseable> owned = new ArrayList<>();

  /** Of the send and the receive buffer; empty if they are no windows. */
  private final List<NcclCommunicator.Window> windows = new ArrayList<>();

  private final Stream stream;
  private final DeviceBuffer sendBuffer;
  private final DeviceBuffer recvBuffer;
  private DeviceBuffer[] sends = {};
  private DeviceBuffer[] recvs = {};
  private PreparedCall[] operations = {};
  private @Nullable RankKernels kernels;

  /**
   * A rank that owns its communicator from now on.
   *
   * @param index its place among the ranks of its thread
   * @param capacity bytes of each buffer
   */
  public LocalRank(int index, Communicator communicator, long capacity) {
    this(index, new Member(communicator, communicator, 0), capacity, 0, false);
  }

  /**
   * A rank's communicators.
   *
   * @param world of all ranks
   * @param group of those it operates with; the same, if they are not divided
   * @param color its group
   */
  record Member(Communicator world, Communicator group, int color) {
    List<Communicator> communicators() {
      return world == group ? List.of(world) : List.of(world, group);
    }
  }

  /**
   * A rank that owns its communicators from now on.
   *
   * @param index its place among the ranks of its thread
   * @param capacity bytes of each buffer that operations use
   * @param unaligned index of the first element that they use
   * @param nullStream whether it uses CUDA's default stream
   */
  public LocalRank(int index, Member member, long capacity, int unaligned, boolean nullStream) {
    this.index = index;
    this.world = member.world();
    this.communicator = member.group();
    this.color = member.color();
    this.capacity = capacity;
    this.unaligned = unaligned;
    owned.addAll(member.communicators());
    try {
      stream = nullStream ? CudaDevice.of(device()).wrapStream(0) : device().newStream();
      owned.add(stream);
      long bytes = capacity + (long) LARGEST_ELEMENT * unaligned;
      sendBuffer = device().allocate(bytes);
      owned.add(sendBuffer);
      recvBuffer = device().allocate(bytes);
      owned.add(recvBuffer);
      // Pages come into being at their first use, which should not be a timed one.
      stream.fill(sendBuffer, (byte) 0);
      stream.fill(recvBuffer, (byte) 0);
      stream.synchronize();
    } catch (Throwable e) {
      world.abort();
      closeAfter(e);
      throw e;
    }
  }

  /** Tells NCCL of the buffers; all ranks call it, at the same time, if it is about windows. */
  void register(Setup.Registration how) {
    NcclCommunicator nccl = NcclCommunicator.of(communicator);
    for (DeviceBuffer buffer : List.of(sendBuffer, recvBuffer)) {
      if (how == Setup.Registration.SYMMETRIC) {
        NcclCommunicator.Window window = nccl.registerWindow(buffer, true, false);
        owned.add(window);
        windows.add(window);
      } else {
        owned.add(nccl.register(buffer));
      }
    }
  }

  /** Measures kernels instead of operations; all ranks call it, with windows, at the same time. */
  void useKernels(DeviceKernel kernel, int blocks) {
    kernels = new RankKernels(kernel, blocks, NcclCommunicator.of(communicator), stream);
    owned.add(kernels);
  }

  private void closeAfter(Throwable failure) {
    try {
      close();
    } catch (RuntimeException e) {
      failure.addSuppressed(e);
    }
  }

  /** Its place among the ranks of its thread, from 0. */
  public int index() {
    return index;
  }

  /** Its number among those it operates with. */
  public int rank() {
    return communicator.rank();
  }

  /** All ranks of the run. */
  Communicator world() {
    return world;
  }

  /** The group it is in. */
  int color() {
    return color;
  }

  /** Those it operates with. */
  public Communicator communicator() {
    return communicator;
  }

  public Device device() {
    return communicator.device();
  }

  public Stream stream() {
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
    long positions = size == 0 ? 1 : Math.max(1, capacity / size);
    int slices = (int) Math.min(positions, iterations);
    sends = new DeviceBuffer[slices];
    recvs = new DeviceBuffer[slices];
    operations = new PreparedCall[slices];
    for (int i = 0; i < slices; i++) {
      long shift = (long) unaligned * next.type().byteSize() + size * i;
      if (inPlace) {
        sends[i] = recvBuffer.slice(shift + next.sendInPlaceOffset(rank()), next.sendBytes());
        recvs[i] = recvBuffer.slice(shift + next.recvInPlaceOffset(rank()), next.recvBytes());
      } else {
        sends[i] = sendBuffer.slice(shift, next.sendBytes());
        recvs[i] = recvBuffer.slice(shift, next.recvBytes());
      }
      operations[i] =
          kernels == null
              ? next.program().prepare(communicator, sends[i], recvs[i], next, op, stream)
              : prepare(kernels, next, inPlace, shift);
    }
  }

  private PreparedCall prepare(RankKernels by, Case next, boolean inPlace, long shift) {
    NcclCommunicator.Window recv = windows.getLast();
    return inPlace
        ? by.prepare(
            next,
            recv,
            shift + next.sendInPlaceOffset(rank()),
            recv,
            shift + next.recvInPlaceOffset(rank()))
        : by.prepare(next, windows.getFirst(), shift, recv, shift);
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
  public DeviceBuffer send(int position) {
    return sends[position];
  }

  /** What the operation at a position receives. */
  public DeviceBuffer recv(int position) {
    return recvs[position];
  }

  /** Issues a stage of one operation of the case at hand. */
  void launch(int position, int stage) {
    operations[position].issue(stage);
  }

  /** Makes room for so many marks. */
  void prepareMarks(int count) {
    while (events.size() < count) {
      Event event = device().newEvent();
      events.add(event);
      owned.add(event);
    }
  }

  /** Puts a mark into the stream. */
  void mark(int number) {
    stream.record(events.get(number));
  }

  /** Microseconds between two marks that are behind the stream. */
  double microsBetween(int first, int second) {
    return events.get(second).elapsedSince(events.get(first)).toNanos() / 1e3;
  }

  @Override
  public void close() {
    Closing.all(owned);
  }
}

package io.nccl4j.conformance;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Group;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import io.nccl4j.conformance.Case.Op;
import io.nccl4j.conformance.Case.Placement;
import java.lang.foreign.Arena;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.BitSet;
import java.util.List;

/**
 * One rank's part of a case: its buffers with guard bytes around the ranges, the call, and the
 * comparison of every byte of every buffer.
 */
final class CaseRunner implements AutoCloseable {
  private static final int GUARD = 64;

  private final Case c;
  private final Oracle oracle;
  private final Communicator communicator;
  private final int rank;
  private final List<Arena> arenas = new ArrayList<>();
  private final List<DeviceBuffer> buffers = new ArrayList<>();

  /** What is used instead of buffers; null if the case is about buffers. */
  private final ArrayCase<?> arrays;

  private final List<byte[]> images = new ArrayList<>();
  private final List<byte[]> expected = new ArrayList<>();
  private final ReduceOp reduceOp;
  private final boolean nothingForUnused;
  private final BitSet accepted = new BitSet();
  private long[] acceptedBits = {};

  private DeviceBuffer send;
  private DeviceBuffer recv;
  private int recvBuffer;
  private int recvStart;

  CaseRunner(Case c, Oracle oracle, Communicator communicator) {
    this.c = c;
    this.oracle = oracle;
    this.communicator = communicator;
    this.rank = communicator.rank();
    this.nothingForUnused = (c.seed() & 2) == 0;
    this.arrays = c.memory() == Case.Memory.ARRAYS ? ArrayCase.of(c, oracle, communicator) : null;
    try {
      if (arrays == null) {
        makeRanges();
      } else {
        images.add(pattern(arrays.sendBytes()));
        images.add(pattern(arrays.recvBytes()));
        recvBuffer = arrays.isInPlace() ? 0 : 1;
        setImage(0, arrays.sendStart());
      }
      reduceOp = reduceOp();
      reset();
    } catch (RuntimeException | Error e) {
      close();
      throw e;
    }
  }

  int rank() {
    return rank;
  }

  /** Writes the initial contents again. */
  void reset() {
    for (int i = 0; i < images.size(); i++) {
      if (isArray(i)) {
        arrays.set(i, images.get(i));
      } else {
        buffer(i).copyFrom(images.get(i));
      }
    }
  }

  private boolean isArray(int i) {
    return arrays != null && i < 2;
  }

  private DeviceBuffer buffer(int i) {
    return buffers.get(arrays == null ? i : i - 2);
  }

  /** Calls the operation. */
  void submit(Stream stream) {
    if (arrays != null) {
      arrays.call(reduceOp);
      return;
    }
    // NCCL sends nothing ahead of the receiver.
    boolean eager = c.op() == Op.EAGER_PAIRS && TestBackend.BACKEND == Backend.CUDA;
    if (c.grouped() || c.op() == Op.RING || c.op() == Op.EXCHANGE || eager) {
      Group.run(() -> call(stream));
    } else {
      call(stream);
    }
  }

  /**
   * Compares all buffers with what they must contain; the stream has been synchronised.
   *
   * @return a checksum of what was received
   * @throws AssertionError if a byte is wrong
   */
  long check() {
    byte[] received = new byte[0];
    for (int i = 0; i < images.size(); i++) {
      byte[] actual = isArray(i) ? arrays.get(i) : buffer(i).toBytes();
      compare(i, actual);
      if (i == recvBuffer && oracle.receives(rank)) {
        int bytes = oracle.recvLength(rank) * c.type().byteSize();
        received = Arrays.copyOfRange(actual, recvStart, recvStart + bytes);
      }
    }
    if (c.op().sameEverywhere()) {
      oracle.sameAsOthers(rank, received);
    }
    return Oracle.checksum(received);
  }

  @Override
  public void close() {
    buffers.reversed().forEach(DeviceBuffer::close);
    arenas.forEach(Arena::close);
  }

  private void makeRanges() {
    int size = c.type().byteSize();
    int sendBytes = oracle.sends(rank) ? oracle.sendLength(rank) * size : 0;
    int recvBytes = oracle.receives(rank) ? oracle.recvLength(rank) * size : 0;
    int start = GUARD + c.shift() * size;
    if (oracle.inPlace(rank)) {
      int sendOffset = oracle.inPlaceSendOffset(rank) * size;
      int sendStart = start + Math.max(0, sendOffset);
      recvStart = start + Math.max(0, -sendOffset);
      int end = Math.max(sendStart + sendBytes, recvStart + recvBytes);
      DeviceBuffer both = newBuffer(end + GUARD);
      send = range(both, sendStart, sendBytes);
      recv = sendOffset == 0 && c.op() != Op.ALL_GATHER ? send : range(both, recvStart, recvBytes);
      if (recv == send && recvBytes != sendBytes) {
        recv = range(both, recvStart, recvBytes);
      }
      setImage(0, sendStart);
    } else if (c.placement() == Placement.ADJACENT) {
      // Back to back, so that writing one element too many hits the other range.
      DeviceBuffer both = newBuffer(start + sendBytes + recvBytes + GUARD);
      send = both.slice(start, sendBytes);
      recvStart = start + sendBytes;
      recv = range(both, recvStart, recvBytes);
      setImage(0, start);
    } else {
      send = maybeReadOnly(range(newBuffer(start + sendBytes + GUARD), start, sendBytes));
      recvStart = GUARD;
      recv = range(newBuffer(recvStart + recvBytes + GUARD), recvStart, recvBytes);
      recvBuffer = 1;
      setImage(0, start);
    }
  }

  /** A slice of exactly these bytes, or a larger one, as a buffer may be larger than needed. */
  private DeviceBuffer range(DeviceBuffer whole, int start, int bytes) {
    boolean exact = (c.seed() & 1) == 0 || oracle.c.placement() == Placement.ADJACENT;
    return exact ? whole.slice(start, bytes) : whole.slice(start);
  }

  /** Half of the wrapped send buffers may only be read. */
  private DeviceBuffer maybeReadOnly(DeviceBuffer send) {
    if (c.memory() != Case.Memory.WRAPPED_AUTO || (c.seed() & 2) == 0) {
      return send;
    }
    return send.device().wrap(send.hostSegment().orElseThrow().asReadOnly());
  }

  private DeviceBuffer newBuffer(int bytes) {
    Device device = communicator.device();
    boolean odd = (rank & 1) == 1;
    DeviceBuffer buffer =
        switch (c.memory()) {
          case ALLOCATED -> device.allocate(bytes);
          case WRAPPED_AUTO -> device.wrap(Arena.ofAuto().allocate(bytes, 64));
          case WRAPPED_SHARED -> wrapped(device, bytes);
          case MIXED -> odd ? wrapped(device, bytes) : device.allocate(bytes);
          case ARRAYS -> throw new AssertionError("arrays are no buffers");
        };
    buffers.add(buffer);
    images.add(pattern(bytes));
    return buffer;
  }

  /** What bytes are before anything is written there. */
  private static byte[] pattern(int length) {
    byte[] bytes = new byte[length];
    int period = Math.min(length, 256);
    for (int i = 0; i < period; i++) {
      bytes[i] = (byte) (0xa5 + i * 7);
    }
    for (int done = period; done < length; done *= 2) {
      System.arraycopy(bytes, 0, bytes, done, Math.min(done, length - done));
    }
    return bytes;
  }

  private DeviceBuffer wrapped(Device device, int bytes) {
    Arena arena = Arena.ofShared();
    arenas.add(arena);
    return device.wrap(arena.allocate(bytes, 64));
  }

  private void setImage(int sendBuffer, int sendStart) {
    byte[] input = oracle.input(rank);
    System.arraycopy(input, 0, images.get(sendBuffer), sendStart, input.length);
    for (byte[] image : images) {
      expected.add(image.clone());
    }
    if (oracle.receives(rank)) {
      int size = c.type().byteSize();
      for (Oracle.Block block : oracle.expected(rank)) {
        System.arraycopy(
            block.bytes(),
            0,
            expected.get(recvBuffer),
            recvStart + block.offset() * size,
            block.bytes().length);
      }
    }
  }

  private void compare(int buffer, byte[] actual) {
    byte[] wanted = expected.get(buffer);
    int size = c.type().byteSize();
    int length = buffer == recvBuffer && oracle.receives(rank) ? oracle.recvLength(rank) : 0;
    int from = 0;
    while (true) {
      int relative = Arrays.mismatch(actual, from, actual.length, wanted, from, wanted.length);
      if (relative < 0) {
        return;
      }
      int element = Math.floorDiv(from + relative - recvStart, size);
      if (element < 0 || element >= length) {
        throw new AssertionError(
            ("rank %d: byte %d of buffer %d changed from 0x%02x to 0x%02x; the result is bytes"
                    + " %d to %d of buffer %d")
                .formatted(
                    rank,
                    from + relative,
                    buffer,
                    wanted[from + relative],
                    actual[from + relative],
                    recvStart,
                    recvStart + oracle.recvLength(rank) * size,
                    recvBuffer));
      }
      int place = recvStart + element * size;
      long got = element(actual, place);
      long want = element(wanted, place);
      boolean bothNan = Bits.isNan(got, c.type()) && Bits.isNan(want, c.type());
      if (!oracle.computes() || !bothNan && !accepts(element, got, want)) {
        throw new AssertionError(
            "rank %d: element %d of %d is 0x%x, not 0x%x"
                .formatted(rank, element, oracle.recvLength(rank), got, want));
      }
      from = place + size;
    }
  }

  /** Asks the oracle, once for bits that repeat with the contents. */
  private boolean accepts(int element, long got, long want) {
    int at = element % Oracle.PERIOD;
    if (accepted.get(at) && acceptedBits[at] == got) {
      return true;
    }
    if (!oracle.accepts(rank, element, got, want)) {
      return false;
    }
    if (acceptedBits.length == 0) {
      acceptedBits = new long[Oracle.PERIOD];
    }
    accepted.set(at);
    acceptedBits[at] = got;
    return true;
  }

  private long element(byte[] bytes, int place) {
    int size = c.type().byteSize();
    return Bits.get(Arrays.copyOfRange(bytes, place, place + size), 0, c.type());
  }

  private ReduceOp reduceOp() {
    return switch (c.reduction()) {
      case SUM -> ReduceOp.SUM;
      case PROD -> ReduceOp.PROD;
      case MIN -> ReduceOp.MIN;
      case MAX -> ReduceOp.MAX;
      case AVG -> ReduceOp.AVG;
      case SCALED -> ReduceOp.preMulSum(oracle.scalar(rank));
      case SCALED_BY_LONG -> ReduceOp.preMulSum(oracle.integerScalar(rank));
      case SCALED_BY_BUFFER -> {
        byte[] scalar = new byte[c.type().byteSize()];
        Bits.put(scalar, 0, c.type(), oracle.scalarBits(rank));
        DeviceBuffer buffer = communicator.device().allocate(scalar.length);
        buffers.add(buffer);
        images.add(scalar);
        expected.add(scalar);
        yield ReduceOp.preMulSum(buffer);
      }
    };
  }

  private void call(Stream stream) {
    long count = c.count();
    DataType type = c.type();
    int root = c.root();
    DeviceBuffer in = oracle.sends(rank) || !nothingForUnused ? send : null;
    DeviceBuffer out = oracle.receives(rank) || !nothingForUnused ? recv : null;
    boolean isRoot = rank == root;
    switch (c.op()) {
      case ALL_REDUCE -> communicator.allReduce(in, out, count, type, reduceOp, stream);
      case REDUCE -> communicator.reduce(in, out, count, type, reduceOp, root, stream);
      case REDUCE_SCATTER -> communicator.reduceScatter(in, out, count, type, reduceOp, stream);
      case REDUCE_SCATTER_V ->
          communicator.reduceScatterV(in, out, longs(oracle.resultCounts), type, reduceOp, stream);
      case BROADCAST -> communicator.broadcast(in, out, count, type, root, stream);
      case ALL_GATHER -> communicator.allGather(in, out, count, type, stream);
      case ALL_TO_ALL -> communicator.allToAll(in, out, count, type, stream);
      case GATHER -> communicator.gather(in, out, count, type, root, stream);
      case SCATTER -> communicator.scatter(in, out, count, type, root, stream);
      case ALL_GATHER_V ->
          communicator.allGatherV(in, out, column(oracle.counts), column(oracle.to), type, stream);
      case ALL_TO_ALL_V ->
          communicator.allToAllV(
              in,
              longs(oracle.counts[rank]),
              longs(oracle.from[rank]),
              out,
              column(oracle.counts),
              column(oracle.to),
              type,
              stream);
      case GATHER_V ->
          communicator.gatherV(
              in,
              oracle.counts[rank][root],
              out,
              isRoot ? column(oracle.counts) : null,
              isRoot ? column(oracle.to) : null,
              type,
              root,
              stream);
      case SCATTER_V ->
          communicator.scatterV(
              in,
              isRoot ? longs(oracle.counts[rank]) : null,
              isRoot ? longs(oracle.from[rank]) : null,
              out,
              oracle.counts[root][rank],
              type,
              root,
              stream);
      case RING -> {
        send((rank + 1) % c.nranks(), stream);
        recv((rank + c.nranks() - 1) % c.nranks(), stream);
      }
      case EXCHANGE -> {
        for (int peer = 0; peer < c.nranks(); peer++) {
          recv(peer, stream);
          send(peer, stream);
        }
      }
      case PAIRS, EAGER_PAIRS -> {
        int peer = rank ^ 1;
        if (peer < c.nranks()) {
          boolean sendFirst = rank < peer || c.op() == Op.EAGER_PAIRS;
          if (sendFirst) {
            send(peer, stream);
          }
          recv(peer, stream);
          if (!sendFirst) {
            send(peer, stream);
          }
        }
      }
      case BARRIER -> communicator.barrier(stream);
    }
  }

  private void send(int peer, Stream stream) {
    int size = c.type().byteSize();
    int count = oracle.counts[rank][peer];
    DeviceBuffer part = send.slice((long) oracle.from[rank][peer] * size, (long) count * size);
    communicator.send(part, count, c.type(), peer, stream);
  }

  private void recv(int peer, Stream stream) {
    int size = c.type().byteSize();
    int count = oracle.counts[peer][rank];
    DeviceBuffer part = recv.slice((long) oracle.to[peer][rank] * size, (long) count * size);
    communicator.recv(part, count, c.type(), peer, stream);
  }

  private long[] column(int[][] matrix) {
    return Arrays.stream(matrix).mapToLong(row -> row[rank]).toArray();
  }

  private static long[] longs(int[] ints) {
    return Arrays.stream(ints).asLongStream().toArray();
  }
}

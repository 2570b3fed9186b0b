package io.nccl4j.internal.bootstrap;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;

/**
 * The table of a complete rendezvous.
 *
 * @param ranks one entry per rank, in rank order
 * @param controlOffset of the control block in rank 0's heap
 */
record Answer(List<Entry> ranks, long controlOffset) {
  /** First byte of an encoded answer. */
  static final byte COMPLETE = 1;

  /** First byte of an encoded {@link Failure}. */
  static final byte FAILED = 2;

  /** The only byte of the verdict that all ranks go on. */
  static final byte AGREED = 3;

  private static final int ENTRY_BYTES = 3 * Long.BYTES + 2 * Integer.BYTES;

  /** One rank; {@code pid} is valid in the PID namespace {@code pids}. */
  record Entry(UUID process, int pids, int pid, long heapBytes) {}

  static Answer of(Seat[] seats) {
    List<Entry> entries = new ArrayList<>(seats.length);
    for (Seat seat : seats) {
      entries.add(new Entry(seat.process(), seat.pids(), seat.pid(), seat.joiner().heapBytes()));
    }
    return new Answer(List.copyOf(entries), seats[0].joiner().controlOffset());
  }

  /** Whether it answers this joiner: it may come from a creator that is mistaken, or lies. */
  boolean fits(Joiner joiner) {
    return ranks.size() == joiner.nranks()
        && ranks.get(joiner.rank()).process.equals(joiner.process())
        && ranks.stream().allMatch(entry -> entry.heapBytes >= 0)
        && controlOffset >= 0;
  }

  /** The ranks as this process sees them. */
  List<Member> members() {
    List<Member> members = new ArrayList<>(ranks.size());
    for (Entry entry : ranks) {
      members.add(
          new Member(
              members.size(),
              entry.process,
              Place.HERE.samePids(entry.pids) ? entry.pid : 0,
              entry.heapBytes));
    }
    return members;
  }

  /** The processes other than this one, in the order of their first rank. */
  List<UUID> processesBut(UUID process) {
    Set<UUID> processes = new LinkedHashSet<>();
    ranks.forEach(entry -> processes.add(entry.process));
    processes.remove(process);
    return List.copyOf(processes);
  }

  byte[] encode() {
    ByteBuffer out =
        ByteBuffer.allocate(1 + Long.BYTES + Integer.BYTES + ranks.size() * ENTRY_BYTES);
    out.put(COMPLETE).putLong(controlOffset).putInt(ranks.size());
    for (Entry entry : ranks) {
      out.putLong(entry.process.getMostSignificantBits())
          .putLong(entry.process.getLeastSignificantBits())
          .putInt(entry.pids)
          .putInt(entry.pid)
          .putLong(entry.heapBytes);
    }
    return out.array();
  }

  /** Reads what follows {@link #COMPLETE}; throws RuntimeException if it is malformed. */
  static Answer decode(ByteBuffer in) {
    long controlOffset = in.getLong();
    int count = in.getInt();
    if (count < 1 || in.remaining() != (long) count * ENTRY_BYTES) {
      throw new IllegalArgumentException(count + " ranks in " + in.remaining() + " bytes");
    }
    List<Entry> ranks = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      UUID process = new UUID(in.getLong(), in.getLong());
      ranks.add(new Entry(process, in.getInt(), in.getInt(), in.getLong()));
    }
    return new Answer(List.copyOf(ranks), controlOffset);
  }
}

package io.nccl4j.bench.run;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorHosts;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.bench.Closing;
import io.nccl4j.bench.machine.ThisProcess;
import io.nccl4j.bench.result.RankInfo;
import io.nccl4j.bench.result.RankLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * Where all ranks run. Each rank knows its own record; the sum of arrays that are zero but for that
 * is the whole list, so that it takes no other collective than allReduce. Each record is summed by
 * itself: it is then small enough for every protocol that may be forced.
 */
final class Roster {
  private static final int RECORD_BYTES = 512;
  private static final String SEPARATOR = "\n";

  private Roster() {}

  /** All ranks in order; every thread of the run calls it, with the ranks it drives. */
  static List<RankInfo> gather(RankSet ranks) {
    int bytes = RECORD_BYTES * ranks.first().world().nranks();
    String host = ThisProcess.hostName();
    List<DeviceBuffer> buffers = new ArrayList<>();
    try {
      for (LocalRank rank : ranks) {
        byte[] records = new byte[bytes];
        byte[] own = encode(own(rank, host));
        System.arraycopy(own, 0, records, RECORD_BYTES * rank.world().rank(), own.length);
        DeviceBuffer buffer = rank.device().allocate(bytes);
        buffers.add(buffer);
        buffer.copyFrom(records);
      }
      ranks.grouped(
          rank -> {
            DeviceBuffer buffer = buffers.get(rank.index());
            for (int at = 0; at < bytes; at += RECORD_BYTES) {
              DeviceBuffer record = buffer.slice(at, RECORD_BYTES);
              rank.world()
                  .allReduce(
                      record, record, RECORD_BYTES, DataType.UINT8, ReduceOp.SUM, rank.stream());
            }
          });
      ranks.synchronize();
      return decode(buffers.getFirst().toBytes());
    } finally {
      Closing.all(buffers);
    }
  }

  /** Which ranks share a host: as the communicator says, or else those whose host has one name. */
  static CommunicatorHosts hosts(Communicator world, List<RankInfo> ranks) {
    return world
        .hosts()
        .orElseGet(
            () ->
                new CommunicatorHosts(
                    RankLayout.of(ranks.stream().map(RankInfo::host).toList()), "", "", ""));
  }

  private static RankInfo own(LocalRank rank, String host) {
    Device device = rank.device();
    return new RankInfo(
        rank.world().rank(),
        rank.color(),
        ProcessHandle.current().pid(),
        host,
        device.ordinal(),
        deviceId(device),
        device.name());
  }

  /** As nccl-tests has it: domain, bus and device, without the function. */
  private static String deviceId(Device device) {
    String address = device.pciAddress();
    return address.isEmpty() ? device.backend().label() : address.replaceFirst("\\.\\d+$", "");
  }

  // Fields as lines of text; a name too long for the record loses its end.
  static byte[] encode(RankInfo info) {
    String text =
        String.join(
            SEPARATOR,
            Integer.toString(info.group()),
            Long.toString(info.pid()),
            info.host(),
            Integer.toString(info.device()),
            info.deviceId(),
            info.deviceName());
    return Arrays.copyOf(text.getBytes(StandardCharsets.UTF_8), RECORD_BYTES);
  }

  static List<RankInfo> decode(byte[] records) {
    List<RankInfo> ranks = new ArrayList<>();
    for (int at = 0; at < records.length; at += RECORD_BYTES) {
      int end = at;
      while (end < at + RECORD_BYTES && records[end] != 0) {
        end++;
      }
      String[] fields =
          new String(records, at, end - at, StandardCharsets.UTF_8).split(SEPARATOR, 6);
      ranks.add(
          new RankInfo(
              ranks.size(),
              Integer.parseInt(fields[0]),
              Long.parseLong(fields[1]),
              fields[2],
              Integer.parseInt(fields[3]),
              fields[4],
              fields[5]));
    }
    return ranks;
  }
}

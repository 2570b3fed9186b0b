package io.nccl4j.host;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import java.lang.foreign.MemorySegment;
import java.util.stream.IntStream;
import org.jspecify.annotations.Nullable;

/**
 * Makes communicators out of a part of another's ranks. No new connection is needed: the first rank
 * of each new communicator puts its control block into its heap, which the others have mapped
 * already.
 */
final class Split {
  private Split() {}

  static @Nullable HostCommunicator run(
      HostCommunicator parent, int color, int key, CommunicatorConfig config) {
    long[] answers = parent.exchange(color, key);
    int[] members =
        IntStream.range(0, parent.nranks())
            .filter(k -> answers[2 * k] == color)
            .boxed()
            .sorted((a, b) -> Long.compare(answers[2 * a + 1], answers[2 * b + 1]))
            .mapToInt(Integer::intValue)
            .toArray();
    if (color == Communicator.NO_COLOR) {
      parent.exchange(-1);
      return null;
    }
    boolean leads = members[0] == parent.rank();
    long handle =
        leads ? HostBackend.newControlBlock((HostDevice) parent.device(), members.length) : -1;
    long found = parent.exchange(handle)[members[0]];
    boolean leaderIsHere = parent.local(members[0]) != null;
    HostHeap.Block block = leaderIsHere ? HostProcess.self().published(found) : null;
    ControlBlock control = locate(parent, members[0], block, found, members.length);
    int[] processOf = IntStream.of(members).map(parent.part()::processOf).toArray();
    int rank =
        IntStream.range(0, members.length)
            .filter(i -> members[i] == parent.rank())
            .findFirst()
            .orElseThrow();
    LocalPart part =
        LocalPart.join(
            control, () -> new LocalPart(control, processOf, parent.part().group(), found, block));
    String name = config.name() == null ? parent.name() + "/" + color : config.name();
    return HostBackend.attach(rank, (HostDevice) parent.device(), part, config, name);
  }

  private static ControlBlock locate(
      HostCommunicator parent,
      int leader,
      HostHeap.@Nullable Block block,
      long handle,
      int nranks) {
    int process = parent.part().processOf(leader);
    MemorySegment memory = block == null ? parent.part().group().heap(process) : block.segment();
    return ControlBlock.find(memory, block == null ? handle : block.offset(), nranks, leader);
  }
}

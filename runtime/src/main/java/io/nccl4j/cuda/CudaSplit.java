package io.nccl4j.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import org.jspecify.annotations.Nullable;

/** How a communicator is divided. */
final class CudaSplit {
  private CudaSplit() {}

  static @Nullable CudaCommunicator run(
      CudaCommunicator parent, Team team, int color, int key, CommunicatorConfig config) {
    // NCCL writes it from a thread of its own, whenever all ranks have come.
    MemorySegment out = parent.arena().allocate(ValueLayout.ADDRESS);
    MemorySegment nativeName = NcclConfig.name(config);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
      int result;
      parent.guard().enter();
      try {
        result = Nccl.ncclCommSplit(parent.handle(), color, key, out, nativeConfig);
      } finally {
        parent.guard().leave();
      }
      if (NcclResults.isFailure(result)) {
        NcclException e = NcclResults.failure(result, "split of communicator " + parent.name());
        parent.fail(e);
        throw e;
      }
      // The call says success also when it goes on in the background.
      parent.callGoesOn("split of communicator " + parent.name());
      parent.awaitReady(
          config.initTimeout(),
          () -> "split of communicator " + parent.name() + ": not all ranks called it, and it");
      throwIfFailed(parent);
      MemorySegment handle = out.get(ValueLayout.ADDRESS, 0);
      if (color == Communicator.NO_COLOR) {
        return null;
      }
      CudaCommunicator child = attach(parent, handle, team, config);
      child.keep(nativeName);
      return child;
    }
  }

  private static CudaCommunicator attach(
      CudaCommunicator parent, MemorySegment handle, Team team, CommunicatorConfig config) {
    String given = config.name();
    String name = given == null ? parent.name() + "." + team.number() : given;
    CudaInit.awaitReady(
        handle, config.initTimeout(), () -> "split of communicator " + parent.name());
    return CudaCommunicator.create(
        CudaInit.rank(handle),
        CudaInit.count(handle),
        parent.cudaDevice(),
        handle,
        team,
        config,
        name);
  }

  private static void throwIfFailed(CudaCommunicator communicator) {
    NcclException failure = communicator.failureCause();
    if (failure != null) {
      throw failure;
    }
  }
}

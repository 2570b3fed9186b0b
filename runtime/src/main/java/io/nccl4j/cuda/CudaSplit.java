package io.nccl4j.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.bindings.nccl.Nccl;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.List;
import org.jspecify.annotations.Nullable;

/** How a communicator is divided. */
final class CudaSplit {
  private CudaSplit() {}

  static @Nullable CudaCommunicator run(
      CudaCommunicator parent, Team team, int color, int key, CommunicatorConfig config) {
    // NCCL writes it from a thread of its own, whenever all ranks have come.
    MemorySegment out = parent.arena().allocate(ValueLayout.ADDRESS);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment nativeConfig = NcclConfig.write(arena, config);
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
      parent.callGoesOn();
      parent.awaitReady(
          config.initTimeout(),
          () -> "split of communicator " + parent.name() + ": not all ranks called it, and it");
      throwIfFailed(parent);
      MemorySegment handle = out.get(ValueLayout.ADDRESS, 0);
      if (color == Communicator.NO_COLOR) {
        return null;
      }
      return attach(parent, handle, team, config);
    }
  }

  private static CudaCommunicator attach(
      CudaCommunicator parent, MemorySegment handle, Team team, CommunicatorConfig config) {
    String given = config.name();
    String name = given == null ? parent.name() + "." + team.number() : given;
    try {
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
    } catch (NcclException e) {
      CudaInit.abort(List.of(handle), e);
      throw e;
    }
  }

  private static void throwIfFailed(CudaCommunicator communicator) {
    NcclException failure = communicator.failureCause();
    if (failure != null) {
      throw failure;
    }
  }
}

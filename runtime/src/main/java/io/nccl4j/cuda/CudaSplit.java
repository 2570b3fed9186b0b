package io.nccl4j.cuda;

import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
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
    // NCCL may write to it from a thread of its own, whenever all ranks have come.
    MemorySegment out = parent.arena().allocate(ValueLayout.ADDRESS);
    MemorySegment nativeName = NcclConfig.name(config);
    MemorySegment handle = parent.handle();
    String what = "split of communicator " + parent.name();
    try {
      Patiently.run(
          "nccl4j-split-" + parent.name(),
          () -> {
            try (Arena arena = Arena.ofConfined()) {
              MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
              NcclResults.check(Nccl.ncclCommSplit(handle, color, key, out, nativeConfig), what);
            }
          },
          config.initTimeout(),
          () -> parent.fail(late(what, config)),
          () -> late(what, config));
    } catch (NcclException e) {
      parent.fail(e);
      NcclException first = parent.failureCause();
      // Another rank's deadline made NCCL end this call: that is the reason, not what NCCL says.
      throw first != null && first.getCause() instanceof DeadlineException ? first : e;
    }
    // The call says success also when it goes on in the background.
    parent.callGoesOn(what);
    parent.awaitReady(config.initTimeout(), () -> what + ": not all ranks called it");
    NcclException failure = parent.failureCause();
    if (failure != null) {
      throw failure;
    }
    if (color == Communicator.NO_COLOR) {
      return null;
    }
    CudaCommunicator child = attach(parent, out.get(ValueLayout.ADDRESS, 0), team, config, what);
    child.keep(nativeName);
    return child;
  }

  static DeadlineException late(String what, CommunicatorConfig config) {
    return new DeadlineException(
        what + " was not done after " + config.initTimeout().toMillis() + " ms",
        "call it on all ranks; init-timeout sets the deadline");
  }

  /** A child that NCCL has made. */
  static CudaCommunicator attach(
      CudaCommunicator parent,
      MemorySegment handle,
      Team team,
      CommunicatorConfig config,
      String what) {
    String given = config.name();
    String name = given == null ? parent.name() + "." + team.number() : given;
    try {
      CudaInit.awaitReady(handle, config.initTimeout(), () -> what);
      return CudaCommunicator.create(
          CudaInit.rank(handle),
          CudaInit.count(handle),
          parent.cudaDevice(),
          handle,
          team,
          config,
          name);
    } catch (NcclException e) {
      CudaCommunicator.abortInBackground(handle, name, () -> {});
      throw e;
    }
  }
}

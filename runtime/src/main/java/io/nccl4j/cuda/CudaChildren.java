package io.nccl4j.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.List;
import java.util.concurrent.atomic.AtomicBoolean;
import org.jspecify.annotations.Nullable;

/** How communicators of fewer and of more ranks are made of one. */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaChildren {
  private static final int ABORT = 1;
  private static final VarHandle POINTER = ValueLayout.ADDRESS.varHandle();

  private CudaChildren() {}

  static CudaCommunicator shrink(
      CudaCommunicator parent,
      Team team,
      int[] excluded,
      boolean abort,
      CommunicatorConfig config) {
    return make(
        parent,
        team,
        config,
        "shrink",
        (handle, arena, out, nativeConfig) ->
            Nccl.ncclCommShrink(
                handle,
                arena.allocateFrom(ValueLayout.JAVA_INT, excluded),
                excluded.length,
                out,
                nativeConfig,
                abort ? ABORT : 0));
  }

  /** The first and the last rank wait inside the call until the root has made the id. */
  static CudaCommunicator grow(
      CudaCommunicator parent,
      Team team,
      int nranks,
      @Nullable UniqueId id,
      CommunicatorConfig config) {
    return make(
        parent,
        team,
        config,
        "grow",
        (handle, arena, out, nativeConfig) -> {
          MemorySegment idSegment = id == null ? MemorySegment.NULL : write(arena, id);
          return Nccl.ncclCommGrow(handle, nranks, idSegment, -1, out, nativeConfig);
        });
  }

  private static MemorySegment write(Arena arena, UniqueId id) {
    MemorySegment segment = ncclUniqueId.allocate(arena);
    byte[] bytes = id.toBytes();
    MemorySegment.copy(bytes, 0, segment, ValueLayout.JAVA_BYTE, 0, bytes.length);
    return segment;
  }

  /** A call that makes a child. */
  private interface Call {
    int run(MemorySegment parent, Arena arena, MemorySegment out, MemorySegment config);
  }

  private static CudaCommunicator make(
      CudaCommunicator parent, Team team, CommunicatorConfig config, String what, Call call) {
    // NCCL may write to it from a thread of its own, whenever all ranks have come.
    MemorySegment out = parent.arena().allocate(ValueLayout.ADDRESS);
    MemorySegment nativeName = NcclConfig.name(config);
    CudaCalls.run(
        parent,
        what,
        config.initTimeout(),
        handle -> {
          try (Arena arena = Arena.ofConfined()) {
            MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
            return call.run(handle, arena, out, nativeConfig);
          }
        });
    CudaCommunicator child =
        CudaSplit.attach(
            parent,
            out.get(ValueLayout.ADDRESS, 0),
            team,
            config,
            what + " of communicator " + parent.name());
    child.keep(nativeName);
    return child;
  }

  /** A new rank of a grow. */
  static CudaCommunicator join(
      CudaDevice device,
      int nranks,
      UniqueId id,
      int rank,
      Team team,
      CommunicatorConfig config,
      String name) {
    Features.GROW.require();
    NcclConfig.requireKnown(config.nccl());
    SharedMemoryNeed.require(List.of(device), nranks, config, name);
    team.expect(rank, nranks);
    String of = "rank " + rank + " of " + nranks + " joining " + name;
    MemorySegment nativeName = NcclConfig.name(config);
    // Kept by the thread that NCCL may hold for longer than the caller waits.
    Arena arena = Arena.ofAuto();
    MemorySegment out = arena.allocate(ValueLayout.ADDRESS);
    AtomicBoolean aborted = new AtomicBoolean();
    device.prepare();
    try {
      Patiently.run(
          "nccl4j-join-" + name,
          () -> {
            try (CudaDevice.Scope ignored = device.enter()) {
              MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
              NcclResults.check(
                  Nccl.ncclCommGrow(
                      MemorySegment.NULL, nranks, write(arena, id), rank, out, nativeConfig),
                  of);
            }
          },
          config.initTimeout(),
          () -> abort(out, name, aborted),
          () -> failure(out, of),
          () -> CudaCalls.late(of, config.initTimeout()));
      MemorySegment handle = handle(out);
      CudaInit.awaitReady(handle, config.initTimeout(), () -> of);
      CudaCommunicator joined =
          CudaCommunicator.create(rank, nranks, device, handle, team, config, name);
      joined.keep(nativeName);
      return joined;
    } catch (NcclException e) {
      abort(out, name, aborted);
      throw e;
    }
  }

  /** NCCL writes it before it waits. */
  private static MemorySegment handle(MemorySegment out) {
    return (MemorySegment) POINTER.getAcquire(out, 0L);
  }

  /** What NCCL ran into while it still waits for others. */
  private static @Nullable NcclException failure(MemorySegment out, String of) {
    MemorySegment handle = handle(out);
    int result =
        handle.equals(MemorySegment.NULL) ? NcclResults.SUCCESS : CudaInit.asyncError(handle);
    return NcclResults.isFailure(result) ? NcclResults.failure(result, of) : null;
  }

  private static void abort(MemorySegment out, String name, AtomicBoolean aborted) {
    MemorySegment handle = handle(out);
    if (!handle.equals(MemorySegment.NULL) && !aborted.getAndSet(true)) {
      CudaCommunicator.abortInBackground(handle, name, () -> {});
    }
  }
}

package io.nccl4j.cuda;

import io.nccl4j.CommunicatorConfig;
import io.nccl4j.DeadlineException;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclUniqueId;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/** How communicators of fewer and of more ranks are made of one. */
@SuppressWarnings("try") // a scope is entered, not used
final class CudaChildren {
  private static final int ABORT = 1;

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

  static CudaCommunicator grow(
      CudaCommunicator parent,
      Team team,
      int nranks,
      @Nullable UniqueId id,
      CommunicatorConfig config) {
    // The first and the last rank wait inside the call until the root has made the id.
    Thread watch = watch(parent, config.initTimeout());
    try {
      return make(
          parent,
          team,
          config,
          "grow",
          (handle, arena, out, nativeConfig) -> {
            MemorySegment idSegment = id == null ? MemorySegment.NULL : write(arena, id);
            return Nccl.ncclCommGrow(handle, nranks, idSegment, -1, out, nativeConfig);
          });
    } finally {
      watch.interrupt();
    }
  }

  private static Thread watch(CudaCommunicator parent, Duration timeout) {
    String problem =
        "grow of communicator " + parent.name() + " was not done after " + timeout.toMillis();
    return Thread.ofPlatform()
        .daemon()
        .name("nccl4j-grow-" + parent.name())
        .start(
            () -> {
              long start = System.nanoTime();
              while (!Thread.currentThread().isInterrupted()) {
                long left = timeout.toNanos() - (System.nanoTime() - start);
                if (left <= 0) {
                  parent.fail(
                      new DeadlineException(
                          problem + " ms",
                          "call createGrowId on the root first, grow on all ranks, and join with"
                              + " that id on the new ones"));
                  return;
                }
                LockSupport.parkNanos(left);
              }
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
    // NCCL writes it from a thread of its own, whenever all ranks have come.
    MemorySegment out = parent.arena().allocate(ValueLayout.ADDRESS);
    MemorySegment nativeName = NcclConfig.name(config);
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
      CudaCalls.run(
          parent, what, config.initTimeout(), handle -> call.run(handle, arena, out, nativeConfig));
    }
    MemorySegment handle = out.get(ValueLayout.ADDRESS, 0);
    String of = what + " of communicator " + parent.name();
    try {
      CudaInit.awaitReady(handle, config.initTimeout(), () -> of);
    } catch (NcclException e) {
      CudaInit.abort(List.of(handle), e);
      throw e;
    }
    String given = config.name();
    CudaCommunicator child =
        CudaCommunicator.create(
            CudaInit.rank(handle),
            CudaInit.count(handle),
            parent.cudaDevice(),
            handle,
            team,
            config,
            given == null ? parent.name() + "." + team.number() : given);
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
    team.expect(rank, nranks);
    MemorySegment nativeName = NcclConfig.name(config);
    // Closed when NCCL has written; where it never does, it is left to NCCL.
    Arena outArena = Arena.ofShared();
    MemorySegment out = outArena.allocate(ValueLayout.ADDRESS);
    device.prepare();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment nativeConfig = NcclConfig.write(arena, config, nativeName);
      MemorySegment idSegment = write(arena, id);
      int result;
      try (CudaDevice.Scope ignored = device.enter()) {
        result = Nccl.ncclCommGrow(MemorySegment.NULL, nranks, idSegment, rank, out, nativeConfig);
      }
      MemorySegment handle = out.get(ValueLayout.ADDRESS, 0);
      try {
        NcclResults.check(result, "joining " + name);
        CudaInit.awaitReady(
            handle, config.initTimeout(), () -> "rank " + rank + " joining " + name);
      } catch (NcclException e) {
        CudaInit.abort(List.of(handle), e);
        throw e;
      }
      outArena.close();
      CudaCommunicator joined =
          CudaCommunicator.create(rank, nranks, device, handle, team, config, name);
      joined.keep(nativeName);
      return joined;
    }
  }
}

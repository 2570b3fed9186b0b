package io.nccl4j.internal.cuda;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.Communicators;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import io.nccl4j.cuda.CudaException;
import io.nccl4j.cuda.NcclCommunicator;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** How joining fails: in time, with the reason, and without leaving anything. */
class CudaInitTest {
  private static final CommunicatorConfig SHORT = CudaRig.config(400, 20_000, 2_000);
  private static final CommunicatorConfig LONG = CudaRig.config(20_000, 20_000, 2_000);
  private static final long SECOND = 1_000_000_000L;

  private StandIn standIn = StandIn.require();

  @BeforeEach
  void begin() {
    standIn = CudaRig.begin();
  }

  @AfterEach
  void nothingIsLeftAndOthersWork() {
    standIn.reset();
    CudaRig.requireNoLeak();
    try (CudaRig others = new CudaRig(2)) {
      others.checkSums();
    }
    CudaRig.requireNoLeak();
  }

  private static Throwable join(int nranks, CommunicatorConfig config) {
    return CudaRig.outcome(ignored -> new CudaRig(0, nranks, config).close());
  }

  private static void requireText(Throwable thrown, String... words) {
    for (String word : words) {
      assertTrue(
          String.valueOf(thrown.getMessage()).contains(word),
          () -> "'" + word + "' is not in: " + thrown.getMessage());
    }
  }

  /** NCCL has read the environment by then, which had no such variable. */
  @Test
  void whatIsForcedLaterIsRefused() {
    try (CudaRig first = new CudaRig(2)) {
      first.checkSums();
      CommunicatorConfig forced = LONG.toBuilder().algorithm("Tree").build();
      Throwable e = join(2, forced);
      assertInstanceOf(InvalidUsageException.class, e);
      requireText(e, "algo is Tree", "NCCL_ALGO unset", "NCCL is loaded with that");
      CommunicatorConfig child = LONG.toBuilder().protocol("LL").build();
      requireText(
          CudaRig.outcome(
              ignored -> {
                try (Communicators one = Communicator.initAll(List.of(CudaRig.device(2)), LONG)) {
                  one.get(0).split(0, 0, child);
                }
              }),
          "proto is LL",
          "NCCL_PROTO unset");
    }
  }

  /** Two of three ranks come: both are told, and by which setting. */
  @Test
  void rankIsMissing() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    long start = System.nanoTime();
    List<Throwable> thrown =
        CudaRig.outcomes(
            2, rank -> Communicator.initRank(CudaRig.device(rank), 3, id, rank, SHORT).close());
    long took = System.nanoTime() - start;
    for (int rank = 0; rank < 2; rank++) {
      // Who gave up first ends the other's wait.
      boolean first = thrown.get(rank) instanceof DeadlineException;
      Throwable e = first ? thrown.get(rank) : requirePeersDeadline(thrown.get(rank), 1 - rank);
      requireText(
          e,
          "rank " + (first ? rank : 1 - rank) + " joining",
          "ranks that have not joined in this process: ",
          "2)",
          "400 ms",
          "init-timeout");
    }
    assertTrue(took >= 4 * SECOND / 10 && took < 5 * SECOND, () -> took + " ns");
    assertEquals(2, standIn.calls("ncclCommAbort"));
  }

  @Test
  void ranksContradictEachOther() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    Throwable[] second = new Throwable[1];
    Throwable first =
        CudaRig.outcomes(
                2,
                rank -> {
                  if (rank == 0) {
                    Communicator.initRank(CudaRig.device(0), 2, id, 0, SHORT).close();
                  } else {
                    Thread.sleep(100);
                    second[0] =
                        CudaRig.outcome(
                            ignored ->
                                Communicator.initRank(CudaRig.device(1), 3, id, 1, SHORT).close());
                  }
                })
            .getFirst();
    assertInstanceOf(DeadlineException.class, first);
    assertInstanceOf(InvalidUsageException.class, second[0]);
    requireText(second[0], "3 ranks", "another rank 2", "same nranks");
  }

  @Test
  void rankIsTakenTwice() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    List<Throwable> thrown =
        CudaRig.outcomes(
            2, rank -> Communicator.initRank(CudaRig.device(rank), 2, id, 0, SHORT).close());
    Throwable refused =
        thrown.get(0) instanceof InvalidUsageException ? thrown.get(0) : thrown.get(1);
    Throwable waiting = refused == thrown.get(0) ? thrown.get(1) : thrown.get(0);
    assertInstanceOf(InvalidUsageException.class, refused);
    requireText(refused, "rank 0", "taken before", "a new unique id");
    assertInstanceOf(DeadlineException.class, waiting);
  }

  @Test
  void twoRanksOnOneGpu() {
    InvalidUsageException e =
        assertThrows(
            InvalidUsageException.class,
            () ->
                Communicator.initAll(List.of(CudaRig.device(0), CudaRig.device(0)), SHORT).close());
    requireText(e, "two ranks are on cuda device 0", "NCCL_MULTI_RANK_GPU_ENABLE=1");
  }

  @Test
  void uniqueIdFails() {
    standIn.inject("ncclGetUniqueId", 1, StandIn.Fault.ERROR, 2);
    SystemErrorException e =
        assertThrows(SystemErrorException.class, () -> UniqueId.create(Backend.CUDA));
    requireText(e, "ncclGetUniqueId", "ncclSystemError (2)", "NCCL_DEBUG");
    standIn.inject("ncclGetUniqueId", 1, StandIn.Fault.ERROR, 2);
    assertInstanceOf(SystemErrorException.class, join(2, SHORT));
  }

  /** Whichever rank NCCL refuses at once, all are given up, with its error. */
  @ParameterizedTest(name = "rank {0} with {1}")
  @CsvSource({"0, 1", "1, 2", "2, 3", "3, 4", "3, 5", "1, 6"})
  void rankIsRefused(int rank, int code) {
    standIn.inject("ncclCommInitRankConfig@" + rank, 1, StandIn.Fault.ERROR, code);
    NcclException e = assertInstanceOf(NcclException.class, join(4, CudaRig.CONFIG));
    assertEquals(NcclException.Result.values()[code], e.result());
    requireText(e, "joining cuda-", "(" + code + ")", "injected error " + code);
  }

  /** Whichever rank fails in the background, that ends it, not the deadline of ten seconds. */
  @ParameterizedTest(name = "rank {0} with {1}")
  @CsvSource({"0, 2", "1, 6", "3, 3"})
  void rankFailsInTheBackground(int rank, int code) {
    standIn.inject("ncclCommInitRankConfig@" + rank, 1, StandIn.Fault.ASYNC, code);
    long start = System.nanoTime();
    NcclException e = assertInstanceOf(NcclException.class, join(4, CudaRig.CONFIG));
    assertTrue(System.nanoTime() - start < 5 * SECOND, "it waited for the deadline");
    assertEquals(NcclException.Result.values()[code], e.result());
    requireText(e, "rank " + rank + " joining cuda-");
  }

  @ParameterizedTest(name = "rank {0}")
  @ValueSource(ints = {0, 1, 3})
  void rankHangs(int rank) {
    standIn.inject("ncclCommInitRankConfig@" + rank, 1, StandIn.Fault.HANG, 0);
    long start = System.nanoTime();
    DeadlineException e = assertInstanceOf(DeadlineException.class, join(4, SHORT));
    assertTrue(System.nanoTime() - start < 5 * SECOND);
    requireText(e, "400 ms", "init-timeout");
    assertEquals(4, standIn.calls("ncclCommAbort"));
  }

  /**
   * NCCL frees the handle that it has written, since the call fails: nobody may ask it anything.
   */
  @Test
  void handleIsFreedWhileOthersLook() {
    standIn.reset();
    standIn.inject("launch of an init@0", 1, StandIn.Fault.DELAY, 150);
    requireText(join(2, CudaRig.CONFIG), "joining", "(2)", "cannot be launched");
    assertEquals(0, standIn.calls("ncclCommGetAsyncError"));
    assertEquals(0, standIn.calls("ncclCommAbort"));
    // The first rank's handle lasts, and is aborted.
    standIn.inject("launch of an init@1", 1, StandIn.Fault.DELAY, 150);
    requireText(join(2, CudaRig.CONFIG), "joining", "(2)", "cannot be launched");
    assertTrue(CudaRig.eventually(() -> standIn.calls("ncclCommAbort") == 1));
  }

  /** The deadline passes while the handle is made: whoever makes it aborts it, nobody else. */
  @Test
  void handleComesAfterTheDeadline() {
    standIn.reset();
    standIn.inject("launch of an init@0", 1, StandIn.Fault.DELAY, 700);
    assertInstanceOf(DeadlineException.class, join(1, SHORT));
    assertEquals(0, standIn.calls("ncclCommAbort"));
  }

  @Test
  void rankIsLate() {
    standIn.inject("ncclCommInitRankConfig@1", 1, StandIn.Fault.DELAY, 100);
    assertInstanceOf(CudaRig.Nothing.class, join(4, CudaRig.CONFIG));
  }

  @Test
  void groupDoesNotBegin() {
    standIn.inject("ncclGroupStart", 1, StandIn.Fault.ERROR, 3);
    requireText(join(2, SHORT), "ncclGroupStart", "(3)");
  }

  @Test
  void stateCannotBeAsked() {
    standIn.inject("ncclCommGetAsyncError@1", 1, StandIn.Fault.ERROR, 3);
    requireText(join(2, SHORT), "ncclCommGetAsyncError", "(3)");
  }

  /** The device of the second rank cannot be used: the thread has no group open after that. */
  @ParameterizedTest(name = "{0}")
  @ValueSource(strings = {"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2"})
  void deviceCannotBeUsed(String function) {
    Throwable thrown =
        CudaRig.outcome(
            ignored -> {
              standIn.inject(function, 2, StandIn.Fault.ERROR, 999);
              CudaException e =
                  assertThrows(CudaException.class, () -> new CudaRig(0, 2, SHORT).close());
              requireText(e, function.replace("_v2", ""));
              standIn.reset();
              new CudaRig(0, 2, SHORT).close();
            });
    assertInstanceOf(CudaRig.Nothing.class, thrown, thrown::toString);
  }

  /** All ranks have joined, but the third has no memory for its barriers. */
  @Test
  void noMemoryAfterJoining() {
    Throwable thrown =
        CudaRig.outcome(
            ignored -> {
              try (DeviceBuffer filled = fill(CudaRig.device(2))) {
                assertEquals(32L << 20, filled.byteSize());
                standIn.inject("cuMemCreate", 0, StandIn.Fault.ERROR, 2);
                Communicator.initAll(CudaRig.devices(0, 4), CudaRig.CONFIG).close();
              }
            });
    assertInstanceOf(SystemErrorException.class, thrown);
    requireText(thrown, "cuda device 2", "bytes are free");
  }

  /** All of the only chunk that a device then has. */
  private static DeviceBuffer fill(Device device) {
    CudaRig.trim(device);
    return device.allocate(32L << 20);
  }

  /** Real want of memory inside NCCL: it tells CUDA's error. */
  @Test
  void ncclFindsNoMemory() {
    Throwable thrown =
        CudaRig.outcome(
            ignored -> {
              try (DeviceBuffer filled = fill(CudaRig.device(1))) {
                assertEquals(32L << 20, filled.byteSize());
                StandIn.environment("STANDIN_CUDA_MEMORY", Long.toString(33L << 20));
                new CudaRig(0, 2, CudaRig.CONFIG).close();
              } finally {
                StandIn.environment("STANDIN_CUDA_MEMORY", "");
              }
            });
    CudaException e = assertInstanceOf(CudaException.class, thrown);
    requireText(e, "joining", "out of memory");
  }

  // ---- a peer's deadline

  /** The rank was told that another one gave up, and why. */
  private static Throwable requirePeersDeadline(Throwable thrown, int rank) {
    PeerFailedException e =
        assertInstanceOf(PeerFailedException.class, thrown, () -> "not " + thrown);
    assertEquals(rank, e.rank());
    Throwable cause = e;
    while (cause != null && !(cause instanceof DeadlineException)) {
      cause = cause.getCause();
    }
    return assertInstanceOf(DeadlineException.class, cause);
  }

  private static void requireQuick(long start) {
    long took = System.nanoTime() - start;
    assertTrue(took < 10 * SECOND, () -> "it waited for its own deadline: " + took + " ns");
  }

  private static CommunicatorConfig ofRank(int rank) {
    return rank == 0 ? SHORT : LONG;
  }

  @Test
  void peersDeadlineEndsJoining() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    long start = System.nanoTime();
    List<Throwable> thrown =
        CudaRig.outcomes(
            2,
            rank -> Communicator.initRank(CudaRig.device(rank), 3, id, rank, ofRank(rank)).close());
    requireQuick(start);
    assertInstanceOf(DeadlineException.class, thrown.getFirst());
    requirePeersDeadline(thrown.get(1), 0);
  }

  /** NCCL reports an error of its own by then: the deadline is the reason. */
  @Test
  void peersDeadlineOutranksNcclsError() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    Throwable first =
        CudaRig.outcome(rank -> Communicator.initRank(CudaRig.device(0), 2, id, 0, SHORT).close());
    assertInstanceOf(DeadlineException.class, first);
    standIn.inject("ncclCommInitRankConfig@1", 1, StandIn.Fault.ERROR, 6);
    Throwable second =
        CudaRig.outcome(rank -> Communicator.initRank(CudaRig.device(1), 2, id, 1, LONG).close());
    requirePeersDeadline(second, 0);
  }

  /** NCCL says only that another rank has a problem. */
  @Test
  void peersFailureOutranksNcclsRemoteError() {
    UniqueId id = UniqueId.create(Backend.CUDA);
    standIn.inject("ncclCommInitRankConfig@0", 1, StandIn.Fault.ERROR, 2);
    Throwable first =
        CudaRig.outcome(rank -> Communicator.initRank(CudaRig.device(0), 2, id, 0, LONG).close());
    assertInstanceOf(SystemErrorException.class, first);
    standIn.inject("ncclCommInitRankConfig@1", 1, StandIn.Fault.ERROR, 6);
    Throwable second =
        CudaRig.outcome(rank -> Communicator.initRank(CudaRig.device(1), 2, id, 1, LONG).close());
    PeerFailedException told = assertInstanceOf(PeerFailedException.class, second);
    assertEquals(List.of(0), told.failedRanks());
    requireText(told, "rank 0 failed: ");
  }

  @Test
  void peersDeadlineEndsASplit() {
    requirePeersDeadlineEnds(
        (rig, rank) -> rig.communicators.get(rank).split(0, rank, ofRank(rank)));
  }

  @Test
  void peersDeadlineEndsAGrow() {
    CompletableFuture<UniqueId> id = new CompletableFuture<>();
    requirePeersDeadlineEnds(
        (rig, rank) -> {
          NcclCommunicator nccl = NcclCommunicator.of(rig.communicators.get(rank));
          UniqueId own = rank == 0 ? nccl.createGrowId() : null;
          if (own != null) {
            id.complete(own);
          }
          id.join();
          return nccl.grow(4, own, ofRank(rank));
        });
  }

  /** Makes a child of a rank. */
  private interface Child {
    Communicator make(CudaRig rig, int rank);
  }

  /** Of three ranks the last one does not come. */
  private static void requirePeersDeadlineEnds(Child child) {
    try (CudaRig rig = new CudaRig(0, 3, LONG)) {
      long start = System.nanoTime();
      List<Throwable> thrown = CudaRig.outcomes(2, rank -> child.make(rig, rank).close());
      requireQuick(start);
      assertInstanceOf(DeadlineException.class, thrown.getFirst());
      requirePeersDeadline(thrown.get(1), 0);
      assertEquals(Communicator.State.FAILED, rig.communicators.get(2).state());
    }
  }

  /** A rank's child is made after another one's was aborted. */
  @Test
  void lateChildLearnsOfAnAbort() {
    try (CudaRig rig = new CudaRig(2)) {
      standIn.inject("ncclCommUserRank@1", 1, StandIn.Fault.DELAY, 200);
      List<Throwable> thrown =
          CudaRig.outcomes(
              2,
              rank -> {
                try (Communicator child = rig.communicators.get(rank).split(0, rank)) {
                  if (rank == 0) {
                    child.abort();
                  }
                  assertEquals(Communicator.State.ABORTED, child.state());
                }
              });
      thrown.forEach(e -> assertInstanceOf(CudaRig.Nothing.class, e, e::toString));
    }
  }

  // ---- children

  private static Throwable split(CommunicatorConfig config) {
    return CudaRig.outcome(
        ignored -> {
          try (CudaRig rig = new CudaRig(0, 2, CudaRig.config(10_000, 20_000, 500))) {
            for (Throwable thrown :
                CudaRig.outcomes(
                    2,
                    rank -> {
                      Communicator child = rig.communicators.get(rank).split(0, rank, config);
                      assertEquals(2, child == null ? 0 : child.nranks());
                      if (child != null) {
                        child.close();
                      }
                    })) {
              if (thrown instanceof NcclException e) {
                // Who comes late finds the communicator failed, and says why.
                NcclException first = e;
                while (first.getCause() instanceof NcclException earlier) {
                  first = earlier;
                }
                throw first;
              }
            }
          }
        });
  }

  @Test
  void splitWorks() {
    Throwable thrown = split(CudaRig.CONFIG);
    assertInstanceOf(CudaRig.Nothing.class, thrown, thrown::toString);
  }

  @ParameterizedTest(name = "{0} returns {1}")
  @CsvSource({"ncclCommSplit, 2", "ncclCommSplit, 3", "ncclCommUserRank, 3", "ncclCommCount, 3"})
  void splitFails(String function, int code) {
    standIn.inject(function, 0, StandIn.Fault.ERROR, code);
    NcclException e = assertInstanceOf(NcclException.class, split(CudaRig.CONFIG));
    assertEquals(NcclException.Result.values()[code], e.result());
    requireText(e, "(" + code + ")", "injected error");
  }

  @Test
  void splitHangs() {
    standIn.inject("ncclCommSplit@1", 1, StandIn.Fault.HANG, 0);
    NcclException e = assertInstanceOf(NcclException.class, split(SHORT));
    requireText(e, "split of communicator", "400 ms");
  }
}

package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InternalErrorException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.Processes;
import io.nccl4j.bindings.UnixSockets;
import io.nccl4j.internal.host.FullHeapMain;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import java.util.zip.CRC32;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

@Timeout(60)
@Tag("parallel")
class RendezvousTest {
  static final Duration LONG = Duration.ofSeconds(30);

  private final List<AutoCloseable> opened = new ArrayList<>();
  private TestHeap heap;

  @BeforeEach
  void open() {
    Assumptions.assumeTrue(Libc.isAvailable(), Libc::unavailableReason);
    heap = closeLater(new TestHeap());
  }

  @AfterEach
  void close() throws Exception {
    for (AutoCloseable each : opened) {
      each.close();
    }
  }

  private <T extends AutoCloseable> T closeLater(T each) {
    opened.add(each);
    return each;
  }

  private ChildJvm joiners(byte[] id, int nranks, long millis, int... ranks) {
    return joiners("join", id, nranks, millis, ranks);
  }

  private ChildJvm joiners(String threads, byte[] id, int nranks, long millis, int... ranks) {
    List<Object> arguments = new ArrayList<>();
    arguments.addAll(List.of(threads, HexFormat.of().formatHex(id), nranks, millis));
    for (int rank : ranks) {
      arguments.add(rank);
    }
    return closeLater(ChildJvm.start(JoinMain.class, arguments.toArray()));
  }

  /** Joins an own rendezvous on another thread; returns when that has joined, or is through. */
  static CompletableFuture<Membership> async(byte[] id, Joiner joiner, Duration timeout) {
    CompletableFuture<Membership> result = new CompletableFuture<>();
    Thread thread = start(id, joiner, timeout, result);
    while (thread.isAlive() && thread.getState() != Thread.State.TIMED_WAITING) {
      sleep(1);
    }
    return result;
  }

  private static Thread start(
      byte[] id, Joiner joiner, Duration timeout, CompletableFuture<Membership> result) {
    return Thread.ofPlatform()
        .daemon()
        .start(
            () -> {
              try {
                result.complete(Rendezvous.join(id, joiner, timeout));
              } catch (RuntimeException e) {
                result.completeExceptionally(e);
              }
            });
  }

  private static <T extends NcclException> T failure(
      Class<T> type, CompletableFuture<Membership> join) {
    Exception e = assertThrows(Exception.class, () -> join.get(30, TimeUnit.SECONDS));
    return assertInstanceOf(type, e.getCause());
  }

  private static void contains(Throwable e, String... parts) {
    for (String part : parts) {
      assertTrue(e.getMessage().contains(part), part + " is not in: " + e.getMessage());
    }
  }

  private static void contains(String text, String... parts) {
    contains(new Exception(text), parts);
  }

  // ---------------------------------------------------------------- success

  @Test
  void threadsOfOneProcess() throws Exception {
    for (int nranks = 1; nranks <= 8; nranks++) {
      byte[] id = Rendezvous.createUniqueId();
      assertEquals(128, id.length);
      List<Callable<Membership>> ranks = new ArrayList<>();
      for (int i = 0; i < nranks; i++) {
        int rank = i;
        int of = nranks;
        ranks.add(() -> heap.join(id, rank, of, LONG));
      }
      for (Membership membership : Ranks.run(ranks)) {
        assertEquals(nranks, membership.members().size());
        assertEquals(4096, membership.controlOffset());
        for (int rank = 0; rank < nranks; rank++) {
          Member expected =
              new Member(rank, heap.process, ProcessHandle.current().pid(), TestHeap.BYTES);
          assertEquals(expected, membership.members().get(rank));
        }
        assertThrows(InternalErrorException.class, () -> membership.takeHeapFd(heap.process));
        membership.close();
        membership.close();
      }
    }
  }

  @Test
  void virtualThreadsOfSeveralNamedProcessesAndManyDescriptors() throws Exception {
    // 150 names of processes need three packets of descriptors; 600 ranks need two of the table.
    int nranks = 600;
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm child = joiners(id, nranks, 30_000, nranks - 1);
    List<UUID> names = new ArrayList<>();
    for (int i = 0; i < 150; i++) {
      names.add(UUID.randomUUID());
    }
    ExecutorService threads = Executors.newVirtualThreadPerTaskExecutor();
    List<Callable<Integer>> ranks = new ArrayList<>();
    for (int i = 0; i < nranks - 1; i++) {
      int rank = i;
      Joiner joiner =
          new Joiner(
              rank,
              nranks,
              names.get(rank % 150),
              77,
              heap.fd,
              TestHeap.BYTES,
              rank == 0 ? 4096 : -1);
      ranks.add(
          () -> {
            try (Membership membership = Rendezvous.join(id, joiner, LONG)) {
              return membership.members().size();
            }
          });
    }
    // All names lead to one heap, which the child cannot know.
    assertEquals(Set.of(nranks), new HashSet<>(Ranks.run(threads, ranks)));
    contains(child.expect("Exception in"), "heap of " + heap.process);
  }

  @Test
  void twoProcesses() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm child = joiners(id, 2, 30_000, 1);
    Membership membership = heap.join(id, 0, 2, LONG);
    assertEquals(child.pid(), membership.members().get(1).pid());
    UUID peer = membership.members().get(1).process();
    Descriptors.close(membership.takeHeapFd(peer));
    assertThrows(InternalErrorException.class, () -> membership.takeHeapFd(peer));
    membership.close();
    assertEquals("2 peers 1", child.expect("joined"));
    assertEquals(0, child.await());
  }

  @Test
  void processesWithoutTheCreator() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    List<ChildJvm> children = List.of(joiners(id, 2, 30_000, 0), joiners(id, 2, 30_000, 1));
    for (ChildJvm child : children) {
      assertEquals("2 peers 1", child.expect("joined"));
      assertEquals(0, child.await());
    }
  }

  @Test
  void threadsOfSeveralProcesses() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm one = joiners(id, 6, 30_000, 1, 4);
    ChildJvm two = joiners(id, 6, 30_000, 3, 5);
    CompletableFuture<Membership> rank2 = async(id, heap.joiner(2, 6), LONG);
    assertEquals(2, heap.checkPeers(heap.join(id, 0, 6, LONG)));
    assertEquals(2, heap.checkPeers(rank2.get(30, TimeUnit.SECONDS)));
    for (ChildJvm child : List.of(one, two)) {
      assertEquals("6 peers 2", child.expect("joined"));
      assertEquals("6 peers 2", child.expect("joined"));
      assertEquals(0, child.await());
    }
  }

  @Test
  void virtualThreadsOfAnotherProcess() throws Exception {
    // More than there are carriers: each must let the others run while it waits.
    int[] ranks = IntStream.range(1, 40).toArray();
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm child = joiners("virtual", id, 40, 30_000, ranks);
    assertEquals(1, heap.checkPeers(heap.join(id, 0, 40, LONG)));
    for (int i = 0; i < ranks.length; i++) {
      assertEquals("40 peers 1", child.expect("joined"));
    }
  }

  // ---------------------------------------------------------------- arguments and ids

  @Test
  void wrongArguments() {
    byte[] id = Rendezvous.createUniqueId();
    for (Joiner wrong :
        List.of(
            heap.joiner(-1, 2),
            heap.joiner(2, 2),
            heap.joiner(0, 0),
            heap.joiner(0, Joiner.MAX_RANKS + 1),
            new Joiner(0, 1, heap.process, 0, -1, 0, -1),
            new Joiner(1, 2, heap.process, 0, -1, 0, 0),
            new Joiner(0, 1, heap.process, 0, -1, -1, 0))) {
      assertThrows(InvalidArgumentException.class, () -> Rendezvous.join(id, wrong, LONG));
    }
    assertThrows(InvalidArgumentException.class, () -> heap.join(id, 0, 1, Duration.ofMillis(-1)));
    assertThrows(InvalidArgumentException.class, () -> heap.join(new byte[128], 0, 1, LONG));
    assertThrows(InvalidArgumentException.class, () -> heap.join(new byte[3], 0, 1, LONG));
    byte[] damaged = id.clone();
    damaged[50] ^= 1;
    contains(
        assertThrows(InvalidArgumentException.class, () -> heap.join(damaged, 0, 1, LONG)),
        "damaged");
    // None of these has used the id.
    heap.join(id, 0, 1, LONG).close();
  }

  /** The id with other bytes and a checksum that fits. */
  private static byte[] forged(byte[] id, int at, byte... bytes) {
    byte[] forged = id.clone();
    System.arraycopy(bytes, 0, forged, at, bytes.length);
    CRC32 crc = new CRC32();
    crc.update(forged, 0, 124);
    ByteBuffer.wrap(forged).putInt(124, (int) crc.getValue());
    return forged;
  }

  @Test
  void otherVersionMachineOrContainer() {
    byte[] id = Rendezvous.createUniqueId();
    contains(
        assertThrows(
            InvalidUsageException.class, () -> heap.join(forged(id, 6, (byte) 9), 0, 1, LONG)),
        "version");
    byte[] foreign = forged(id, 8, new byte[16]);
    byte[] machine = forged(foreign, 56, new byte[] {1, 2, 3, 4, 5, 6, 7, 8});
    byte[] foreignMachine = forged(machine, 92, new byte[8]);
    contains(
        assertThrows(SystemErrorException.class, () -> heap.join(foreignMachine, 0, 1, LONG)),
        "on machine '" + RendezvousId.parse(id).place().host() + "'",
        "boot id 01020304-0506-0708");
    byte[] container = forged(forged(foreign, 72, new byte[] {1, 2, 3, 4}), 92, new byte[8]);
    contains(
        assertThrows(SystemErrorException.class, () -> heap.join(container, 0, 1, LONG)),
        "container");
  }

  @Test
  void wrongSecret() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    byte[] wrong = forged(id, 30, new byte[] {1, 2, 3});
    contains(
        assertThrows(InvalidUsageException.class, () -> heap.join(wrong, 0, 2, LONG)), "secret");
    ChildJvm stranger = joiners(wrong, 2, 30_000, 1);
    contains(stranger.expect("failed"), "InvalidUsageException", "does not know its secret");
    // A stranger that goes on in spite of the wrong proof is refused.
    RendezvousId wrongId = RendezvousId.parse(wrong);
    int socket = connect(wrongId);
    byte[] nonce = new byte[32];
    send(socket, Session.plain(Session.HELLO, hello(nonce)));
    Session.Packet proof = receive(socket);
    Session session = new Session(wrongId, false);
    session.nonces(nonce, proof.body());
    assertFalse(session.verify(proof));
    send(socket, session.seal(Session.JOIN, new byte[100]));
    Session.Packet refused = receive(socket);
    assertEquals(Session.REFUSED, refused.type());
    assertEquals(Session.WRONG_SECRET, refused.body()[0]);
    Descriptors.close(socket);
    // None of that has hurt the rendezvous.
    ChildJvm child = joiners(id, 2, 30_000, 1);
    heap.join(id, 0, 2, LONG).close();
    child.expect("joined");
  }

  @Test
  void idIsUsedOnce() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    heap.join(id, 0, 1, LONG).close();
    contains(
        assertThrows(InvalidUsageException.class, () -> heap.join(id, 0, 1, LONG)), "used before");
    ChildJvm child = joiners(id, 1, 30_000, 0);
    contains(child.expect("failed"), "InvalidUsageException", "used before");
  }

  @Test
  void creatorIsGone() throws Exception {
    ChildJvm creator = closeLater(ChildJvm.start(JoinMain.class, "create"));
    byte[] id = HexFormat.of().parseHex(creator.expect("id"));
    CompletableFuture<Membership> waiting = new CompletableFuture<>();
    Thread rank = start(id, heap.joiner(0, 2), LONG, waiting);
    while (!waiting.isDone() && !awaitsAnswer(rank)) {
      sleep(1);
    }
    creator.kill();
    contains(failure(PeerFailedException.class, waiting), "process " + creator.pid(), "died");
    creator.await();
    contains(
        assertThrows(PeerFailedException.class, () -> heap.join(id, 1, 2, LONG)),
        "process " + creator.pid(),
        "is gone");
  }

  /**
   * Whether a rank has said that it joins; what it hears of the creator before is another error.
   */
  private static boolean awaitsAnswer(Thread rank) {
    return Arrays.stream(rank.getStackTrace())
        .anyMatch(frame -> frame.getMethodName().equals("receiveAnswer"));
  }

  @Test
  void withoutNativeAccess() throws Exception {
    Assumptions.assumeTrue(Runtime.version().feature() >= 24, "access is never denied before 24");
    ChildJvm child =
        closeLater(
            ChildJvm.start(List.of("--illegal-native-access=deny"), JoinMain.class, "threads"));
    assertEquals("2", child.expect("joined"));
    assertEquals("2", child.expect("joined"));
    byte[] id = HexFormat.of().parseHex(child.expect("id"));
    contains(
        assertThrows(BackendUnavailableException.class, () -> heap.join(id, 0, 2, LONG)),
        "process " + child.pid());
    byte[] own = Rendezvous.createUniqueId();
    ChildJvm joiner =
        closeLater(
            ChildJvm.start(
                List.of("--illegal-native-access=deny"),
                NoHeapMain.class,
                HexFormat.of().formatHex(own)));
    contains(joiner.expect("failed"), "BackendUnavailableException", "native access");
  }

  // ---------------------------------------------------------------- contradictions and deaths

  @Test
  void differentNranks() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm child = joiners(id, 3, 30_000, 2);
    child.expect("joining");
    Thread.sleep(200);
    CompletableFuture<Membership> rank1 = async(id, heap.joiner(1, 3), LONG);
    contains(
        assertThrows(InvalidUsageException.class, () -> heap.join(id, 0, 2, LONG)), "rank 0", "3");
    contains(failure(InvalidUsageException.class, rank1), "rank 0", "joins 2 ranks");
    contains(child.expect("failed"), "InvalidUsageException", "rank 0", "2 ranks");
    // Who comes later hears the reason, too.
    contains(assertThrows(InvalidUsageException.class, () -> heap.join(id, 1, 3, LONG)), "2 ranks");
  }

  @Test
  void lateRemoteRankHearsTheReason() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 3), LONG);
    assertThrows(InvalidUsageException.class, () -> heap.join(id, 0, 3, LONG));
    failure(InvalidUsageException.class, rank0);
    ChildJvm child = joiners(id, 3, 30_000, 2);
    contains(child.expect("failed"), "InvalidUsageException", "rank 0 was taken twice");
  }

  @Test
  void rankTakenTwiceAcrossProcesses() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> rank1 = async(id, heap.joiner(1, 3), LONG);
    ChildJvm child = joiners(id, 3, 30_000, 1);
    String[] parts = {
      "rank 1 was taken twice", "" + ProcessHandle.current().pid(), "" + child.pid()
    };
    contains(child.expect("failed InvalidUsageException"), parts);
    contains(failure(InvalidUsageException.class, rank1), parts);
  }

  @Test
  void differentLayoutsHeapsOrHeapless() {
    Joiner first = heap.joiner(0, 2);
    UUID other = UUID.randomUUID();
    refusedTogether(
        InvalidUsageException.class,
        first,
        new Joiner(1, 2, other, 78, heap.fd, TestHeap.BYTES, -1),
        "differently");
    refusedTogether(
        InvalidUsageException.class,
        first,
        new Joiner(1, 2, heap.process, 77, heap.fd, 2 * TestHeap.BYTES, -1),
        "different heaps");
    refusedTogether(
        BackendUnavailableException.class,
        first,
        new Joiner(1, 2, other, 77, -1, TestHeap.BYTES, -1),
        "rank 1 (process " + ProcessHandle.current().pid() + ") cannot share its heap");
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> waiting = async(id, first, LONG);
    Joiner badFile = new Joiner(1, 2, other, 77, 1_000_000, TestHeap.BYTES, -1);
    contains(
        assertThrows(SystemErrorException.class, () -> Rendezvous.join(id, badFile, LONG)),
        "EBADF");
    PeerFailedException heard = failure(PeerFailedException.class, waiting);
    assertEquals(1, heard.rank());
    contains(heard, "rank 1", "EBADF");
  }

  private <T extends NcclException> void refusedTogether(
      Class<T> type, Joiner first, Joiner second, String reason) {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> waiting = async(id, first, LONG);
    contains(assertThrows(type, () -> Rendezvous.join(id, second, LONG)), reason);
    contains(failure(type, waiting), reason);
  }

  @Test
  void missingRankIsNamed() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm child = joiners(id, 4, 30_000, 3);
    awaitConnected(child);
    long start = System.nanoTime();
    DeadlineException late =
        assertThrows(DeadlineException.class, () -> heap.join(id, 1, 4, Duration.ofMillis(200)));
    assertEquals(List.of(0, 2), late.failedRanks());
    contains(
        late,
        "2 of 4 ranks joined",
        "ranks 1, 3 did",
        "ranks 0, 2 did not",
        "rank 1 waited 200 ms");
    assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(2));
    contains(child.expect("failed DeadlineException"), "ranks 0, 2 did not");
  }

  @Test
  void deadlineOfRemoteRank() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 3), LONG);
    ChildJvm child = joiners(id, 3, 1_000, 2);
    String[] parts = {"ranks 0, 2 did", "rank 1 did not", "rank 2 waited"};
    contains(child.expect("failed DeadlineException"), parts);
    DeadlineException late = failure(DeadlineException.class, rank0);
    contains(late, parts);
    assertEquals(List.of(1), late.failedRanks());
  }

  @Test
  void rankDiesWhileItWaits() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm victim = joiners(id, 4, 30_000, 2);
    ChildJvm other = joiners(id, 4, 30_000, 1);
    CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 4), LONG);
    awaitConnected(victim, other);
    victim.kill();
    PeerFailedException failure = failure(PeerFailedException.class, rank0);
    assertEquals(2, failure.rank());
    contains(failure, "rank 2 (process " + victim.pid() + ")");
    contains(other.expect("failed"), "PeerFailedException", "rank 2");
  }

  /** Waits until children have a socket, and then some more, so that they have joined. */
  private static void awaitConnected(ChildJvm... children) throws Exception {
    for (ChildJvm child : children) {
      child.expect("joining");
      long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
      while (!isConnected(child)) {
        assertTrue(System.nanoTime() < end, () -> "process " + child.pid() + " does not connect");
        Thread.sleep(10);
      }
    }
    Thread.sleep(400);
  }

  private static boolean isConnected(ChildJvm child) throws IOException {
    try (Stream<Path> fds = Files.list(Path.of("/proc", Long.toString(child.pid()), "fd"))) {
      return fds.anyMatch(RendezvousTest::isSocket);
    }
  }

  private static boolean isSocket(Path fd) {
    try {
      return Files.readSymbolicLink(fd).toString().startsWith("socket:");
    } catch (IOException e) {
      // Closed since it was listed.
      return false;
    }
  }

  @Test
  void killsAtRandomTimes() throws Exception {
    killAtRandomTimes(3);
  }

  @Test
  @Tag("long")
  @Timeout(1200)
  void manyKillsAtRandomTimes() throws Exception {
    killAtRandomTimes(200);
  }

  /** Whenever a rank dies, the others agree on what came of it, and in time. */
  private void killAtRandomTimes(int rounds) throws Exception {
    long seed = System.nanoTime();
    System.out.println("seed " + seed);
    Random random = new Random(seed);
    for (int round = 0; round < rounds; round++) {
      byte[] id = Rendezvous.createUniqueId();
      try (ChildJvm survivor = joiners(id, 3, 30_000, 1);
          ChildJvm victim = joiners(id, 3, 30_000, 2)) {
        victim.expect("joining");
        CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 3), Duration.ofSeconds(1));
        Thread.sleep(random.nextInt(300));
        victim.kill();
        String here;
        try {
          rank0.get(10, TimeUnit.SECONDS).close();
          here = "joined";
        } catch (ExecutionException e) {
          here = "failed " + e.getCause().getClass().getSimpleName();
        }
        survivor.expect(here);
      }
    }
  }

  @Test
  void interruptedRank() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 3), LONG);
    Thread.currentThread().interrupt();
    assertThrows(InterruptedWaitException.class, () -> heap.join(id, 1, 3, LONG).close());
    assertTrue(Thread.interrupted());
    assertEquals(1, failure(PeerFailedException.class, rank0).rank());
  }

  /** By the way of another process: before the creator knows it, and while it waits. */
  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void interruptedRankOfAnotherProcess(boolean early) throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    CompletableFuture<Membership> rank0 = async(id, heap.joiner(0, 3), LONG);
    Joiner joiner = closeLater(new TestHeap()).joiner(1, 3);
    Thread caller = Thread.currentThread();
    if (early) {
      caller.interrupt();
    } else {
      Thread.ofPlatform()
          .start(
              () -> {
                sleep(100);
                caller.interrupt();
              });
    }
    assertThrows(
        InterruptedWaitException.class,
        () -> RemoteJoin.join(RendezvousId.parse(id), joiner, Deadline.after(LONG)));
    assertTrue(Thread.interrupted());
    assertEquals(1, failure(PeerFailedException.class, rank0).rank());
  }

  // ---------------------------------------------------------------- strangers

  static int connect(RendezvousId id) {
    int socket = UnixSockets.socket(UnixSockets.SOCK_SEQPACKET | UnixSockets.SOCK_CLOEXEC);
    UnixSockets.connectAbstract(socket, id.socketName());
    return socket;
  }

  static byte[] hello(byte[] nonce) {
    return ByteBuffer.allocate(36).putInt(RendezvousId.VERSION).put(nonce).array();
  }

  static boolean send(int socket, byte[] packet, int... fds) {
    try {
      UnixSockets.sendmsg(socket, packet, 0, packet.length, fds, 0);
      return true;
    } catch (LibcException e) {
      return false;
    }
  }

  private static Session.Packet receive(int socket) {
    assertTrue(Descriptors.poll(socket, Descriptors.POLLIN, 5_000) != 0);
    return Session.parse(UnixSockets.recvmsg(socket, 20_000, 8, 0).bytes());
  }

  /** While others come, the process that made the id has no free Java heap. */
  @Tag("long")
  @Test
  @Tag("process")
  void aFullHeapDoesNotEndIt() throws Exception {
    List<String> small = List.of("--enable-native-access=ALL-UNNAMED", "-Xmx24m");
    ChildJvm creator = closeLater(ChildJvm.start(small, FullHeapMain.class, "create", 2000));
    meet(HexFormat.of().parseHex(creator.expect("id")));
    creator.tell("");
    byte[] idBytes = HexFormat.of().parseHex(creator.expect("id"));
    RendezvousId id = RendezvousId.parse(idBytes);
    creator.expect("full");
    List<Integer> sockets = new ArrayList<>();
    for (int i = 0; i < 8; i++) {
      int socket = connect(id);
      sockets.add(socket);
      boolean unusedIfClosed = send(socket, Session.plain(Session.HELLO, hello(new byte[32])));
    }
    creator.expect("freed");
    sockets.forEach(Descriptors::close);
    meet(idBytes);
  }

  private void meet(byte[] id) throws Exception {
    for (ChildJvm child : List.of(joiners(id, 2, 30_000, 0), joiners(id, 2, 30_000, 1))) {
      assertEquals("2 peers 1", child.expect("joined"));
      assertEquals(0, child.await());
    }
  }

  /** Everybody sees the socket's name: another user takes all places that there are, and stays. */
  @Test
  void aFloodOfAnotherUserKeepsNobodyOut() throws Exception {
    Assumptions.assumeTrue(Processes.getuid() == 0, "only root can act as another user");
    byte[] id = Rendezvous.createUniqueId();
    ChildJvm stranger =
        closeLater(ChildJvm.start(JoinMain.class, "flood", HexFormat.of().formatHex(id), 3_000));
    System.out.println("flooding " + stranger.expect("flooding"));
    long start = System.nanoTime();
    ChildJvm child = joiners(id, 2, 10_000, 1);
    assertEquals(1, heap.checkPeers(heap.join(id, 0, 2, Duration.ofSeconds(10))));
    child.expect("joined");
    System.out.printf("joined after %.1f s%n", (System.nanoTime() - start) / 1e9);
  }

  @Test
  void idsThatNobodyUsesAreServedNoLonger() throws Exception {
    ChildJvm child =
        closeLater(
            ChildJvm.start(Map.of("NCCL4J_INIT_TIMEOUT", "500ms"), JoinMain.class, "unused", 50));
    assertEquals("0 0", child.expect("left"));
    contains(
        child.expect("failed"),
        "DeadlineException",
        "no rank used the unique id within 500 ms of its creation");
  }

  @Test
  void memberThatBreaksTheProtocolEndsTheRendezvous() throws Exception {
    byte[] idBytes = Rendezvous.createUniqueId();
    RendezvousId id = RendezvousId.parse(idBytes);
    CompletableFuture<Membership> rank0 = async(idBytes, heap.joiner(0, 3), LONG);
    int socket = connect(id);
    byte[] nonce = random(new Random(1), 32);
    send(socket, Session.plain(Session.HELLO, hello(nonce)));
    Session.Packet proof = receive(socket);
    Session session = new Session(id, false);
    session.nonces(nonce, proof.body());
    assertTrue(session.verify(proof));
    ByteBuffer join = ByteBuffer.allocate(400).putLong(30_000);
    Seat.here(heap.joiner(2, 3)).encode(join);
    byte[] body = new byte[join.position()];
    join.get(0, body);
    send(socket, session.seal(Session.JOIN, body), heap.fd);
    send(socket, random(new Random(2), 50));
    assertEquals(2, failure(PeerFailedException.class, rank0).rank());
    Descriptors.close(socket);
  }

  static byte[] random(Random random, int length) {
    byte[] bytes = new byte[length];
    random.nextBytes(bytes);
    return bytes;
  }

  static void sleep(long millis) {
    try {
      Thread.sleep(millis);
    } catch (InterruptedException e) {
      throw new AssertionError(e);
    }
  }
}

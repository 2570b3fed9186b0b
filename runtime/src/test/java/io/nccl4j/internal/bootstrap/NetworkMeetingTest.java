package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DeadlineException;
import io.nccl4j.Device;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.UniqueId;
import java.io.ByteArrayOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.BindException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Assumptions;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Ranks that meet over TCP, what keeps them from it, and what strangers do at the port. */
@Timeout(60)
@Tag("parallel")
class NetworkMeetingTest {
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final Duration SOON = Duration.ofMillis(300);

  /** For what came of a meeting to be told to those who come late. */
  private static final Duration LINGER = Duration.ofSeconds(2);

  private static final Map<String, String> SHORT = Map.of("NCCL4J_INIT_TIMEOUT", "1s");
  private static final InetAddress HERE = InetAddress.getLoopbackAddress();
  private static final UUID PROCESS = UUID.randomUUID();
  private static final int HELLO_BYTES = 92;

  private final List<AutoCloseable> opened = new ArrayList<>();

  @AfterEach
  void close() throws Exception {
    for (AutoCloseable each : opened.reversed()) {
      each.close();
    }
  }

  private <T extends AutoCloseable> T closeLater(T each) {
    opened.add(each);
    return each;
  }

  private static NetworkId newId() {
    return NetworkCreator.create(new InetSocketAddress(HERE, 0), Deadline.after(LONG));
  }

  private static NetworkId at(int port, String job) {
    return NetworkId.derive(new byte[20], job, new InetSocketAddress(HERE, port));
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, HERE)) {
      return socket.getLocalPort();
    }
  }

  private static Joiner joiner(int rank, int nranks) {
    return new Joiner(rank, nranks, PROCESS, 77, -1, 0, rank == 0 ? 0 : -1);
  }

  private NetworkMeeting connect(NetworkId id, int rank, Duration timeout) {
    return closeLater(NetworkMeeting.connect(id, rank, Deadline.after(timeout)));
  }

  /** All of it; what the ranks brought. */
  private static List<byte[]> meet(NetworkId id, int rank, int nranks, Duration timeout) {
    try (NetworkMeeting meeting = NetworkMeeting.connect(id, rank, Deadline.after(timeout))) {
      List<byte[]> brought = meeting.join(joiner(rank, nranks), bytes("brought", rank));
      List<byte[]> shared = meeting.share(bytes("shared", rank));
      for (int i = 0; i < nranks; i++) {
        assertArrayEquals(bytes("brought", i), brought.get(i));
        assertArrayEquals(bytes("shared", i), shared.get(i));
      }
      meeting.agree();
      return brought;
    }
  }

  /** Rank 0 shares nothing, the others some; the longest is as long as may be. */
  private static byte[] bytes(String what, int rank) {
    int length = rank == 0 ? 0 : rank == 1 ? BytesTable.MAX_BYTES : rank;
    return Arrays.copyOf((what + rank).getBytes(StandardCharsets.UTF_8), length);
  }

  private static void meetAll(NetworkId id, int nranks) throws Exception {
    List<Callable<Integer>> ranks = new ArrayList<>();
    for (int i = 0; i < nranks; i++) {
      int rank = i;
      ranks.add(() -> meet(id, rank, nranks, LONG).size());
    }
    for (int size : Ranks.run(Executors.newVirtualThreadPerTaskExecutor(), ranks)) {
      assertEquals(nranks, size);
    }
  }

  /** A rank on a thread of its own. */
  private static final class Rank<T> extends FutureTask<T> {
    final Thread thread;

    private Rank(Callable<T> rank, boolean virtual) {
      super(rank);
      thread = (virtual ? Thread.ofVirtual() : Thread.ofPlatform().daemon()).unstarted(this);
    }

    static <T> Rank<T> start(Callable<T> callable) {
      Rank<T> rank = new Rank<>(callable, false);
      rank.thread.start();
      return rank;
    }

    /** Returns when it waits in a method of that name, or is through. */
    Rank<T> await(String method) throws InterruptedException {
      while (!isDone()
          && Arrays.stream(thread.getStackTrace())
              .noneMatch(frame -> frame.getMethodName().equals(method))) {
        Thread.sleep(1);
      }
      // It says so to the other side a moment before.
      Thread.sleep(50);
      return this;
    }
  }

  private static Rank<List<byte[]>> waiting(NetworkId id, int rank, int nranks)
      throws InterruptedException {
    return Rank.start(() -> meet(id, rank, nranks, LONG)).await("answer");
  }

  private ChildJvm child(String how, NetworkId id, int nranks, long millis, int... ranks) {
    List<Object> arguments = new ArrayList<>(List.of(how, id.toUniqueId(), nranks, millis));
    Arrays.stream(ranks).forEach(arguments::add);
    return closeLater(ChildJvm.start(JoinMain.class, arguments.toArray()));
  }

  private static <T extends NcclException> T failure(Class<T> type, Future<?> rank) {
    Exception e = assertThrows(Exception.class, () -> rank.get(30, TimeUnit.SECONDS));
    return assertInstanceOf(type, e.getCause());
  }

  private static <T extends NcclException> T contains(T e, String... parts) {
    for (String part : parts) {
      assertTrue(e.getMessage().contains(part), part + " is not in: " + e.getMessage());
    }
    return e;
  }

  private static <T> void contains(String text, String part) {
    assertTrue(text.contains(part), part + " is not in: " + text);
  }

  // ---------------------------------------------------------------- success

  @Test
  void allJoinShareAndAgree() throws Exception {
    for (int nranks = 1; nranks <= 5; nranks++) {
      meetAll(newId(), nranks);
    }
  }

  @Test
  void manyRanksMeetOnVirtualThreads() throws Exception {
    meetAll(newId(), 300);
  }

  @Test
  void ranksOfAnotherProcess() throws Exception {
    NetworkId id = newId();
    ChildJvm child = child("meet", id, 4, 30_000, 1, 3);
    List<Rank<byte[]>> own = new ArrayList<>();
    for (int rank : new int[] {0, 2}) {
      own.add(
          Rank.start(
              () -> {
                NetworkMeeting meeting = connect(id, rank, LONG);
                List<byte[]> brought = meeting.join(joiner(rank, 4), new byte[] {(byte) rank});
                meeting.share(new byte[] {1});
                meeting.agree();
                byte[] all = new byte[4];
                for (int i = 0; i < 4; i++) {
                  all[i] = brought.get(i)[0];
                }
                return all;
              }));
    }
    for (Rank<byte[]> rank : own) {
      assertArrayEquals(new byte[] {0, 1, 2, 3}, rank.get(30, TimeUnit.SECONDS));
    }
    assertEquals("0 1 2 3", child.expect("met"));
    assertEquals("0 1 2 3", child.expect("met"));
    assertEquals(0, child.await());
  }

  @Test
  void whatAllHaveInCommon() {
    NetworkId id = newId();
    NetworkMeeting one = connect(id, 0, LONG);
    NetworkMeeting two = connect(id, 1, LONG);
    assertEquals(id.name(), one.name());
    assertEquals(HERE, one.local());
    assertArrayEquals(one.secretFor("x"), two.secretFor("x"));
    assertFalse(Arrays.equals(one.secretFor("x"), two.secretFor("y")));
    assertFalse(Arrays.equals(id.secret(), one.secretFor("x")));
    assertArrayEquals(one.hostKey(PROCESS), two.hostKey(PROCESS));
    assertFalse(Arrays.equals(one.hostKey(PROCESS), connect(newId(), 0, LONG).hostKey(PROCESS)));
  }

  @Test
  void theyMayAgreeWithoutSharing() throws Exception {
    NetworkId id = newId();
    Rank<Boolean> other =
        Rank.start(
            () -> {
              NetworkMeeting meeting = connect(id, 1, LONG);
              meeting.join(joiner(1, 2), new byte[0]);
              meeting.agree();
              return true;
            });
    NetworkMeeting meeting = connect(id, 0, LONG);
    meeting.join(joiner(0, 2), new byte[0]);
    meeting.agree();
    assertTrue(other.get(30, TimeUnit.SECONDS));
  }

  @Test
  void severalMeetAtOnePort() throws Exception {
    int port = freePort();
    List<Callable<Boolean>> all = new ArrayList<>();
    for (String job : List.of("a", "b", "c")) {
      NetworkCreator.serve(at(port, job), null, Deadline.after(LONG));
      all.add(
          () -> {
            meetAll(at(port, job), 3);
            return true;
          });
    }
    NetworkId value = at(port, "value");
    NetworkMeeting.handOut(value, new byte[] {1, 2, 3}, LONG);
    Ranks.run(all);
    for (int rank = 1; rank < 4; rank++) {
      assertArrayEquals(new byte[] {1, 2, 3}, NetworkMeeting.fetch(value, rank, LONG));
    }
  }

  @Test
  void bytesAreFetchedBeforeTheyAreHandedOut() throws Exception {
    NetworkId id = at(freePort(), "later");
    Rank<byte[]> early = Rank.start(() -> NetworkMeeting.fetch(id, 1, LONG)).await("sleep");
    NetworkMeeting.handOut(id, new byte[128], LONG);
    assertArrayEquals(new byte[128], early.get(30, TimeUnit.SECONDS));
  }

  /**
   * NCCL's id is a secret: what goes over the network shows nothing of it, and not even whether it
   * is the same.
   */
  @Test
  void whatIsHandedOutIsHidden() throws Exception {
    NetworkId id = at(freePort(), "hidden");
    byte[] value = RendezvousId.random(128);
    NetworkMeeting.handOut(id, value, LONG);
    List<byte[]> seen = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      try (Raw raw = new Raw(id)) {
        raw.greet();
        raw.sendSealed(Session.FETCH, new byte[0]);
        Session.Packet answer = raw.receive();
        assertTrue(raw.session.verify(answer));
        seen.add(answer.body());
        assertArrayEquals(value, raw.session.hidden(answer.body()));
      }
    }
    seen.add(value);
    for (int at = 0; at <= value.length - Long.BYTES; at += Long.BYTES) {
      Set<Long> parts = new HashSet<>();
      for (byte[] bytes : seen) {
        assertTrue(parts.add(ByteBuffer.wrap(bytes).getLong(at)), "at byte " + at);
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"127.0.0.1", "::1"})
  void bothVersionsOfAddresses(String literal) throws Exception {
    InetAddress address = InetAddress.ofLiteral(literal);
    NetworkId made;
    try {
      made = NetworkCreator.create(new InetSocketAddress(address, 0), Deadline.after(LONG));
    } catch (SystemErrorException e) {
      Assumptions.abort(e.getMessage());
      return;
    }
    NetworkId read = NetworkId.of(made.toUniqueId());
    assertEquals(made.address(), read.address());
    assertEquals(made.name(), read.name());
    assertArrayEquals(made.secret(), read.secret());
    meetAll(read, 2);
  }

  @Test
  void damagedIdsAreRefused() {
    byte[] bytes = newId().toUniqueId().toBytes();
    assertTrue(NetworkId.isOne(UniqueId.ofBytes(bytes)));
    bytes[30] ^= 1;
    contains(
        assertThrows(
            InvalidArgumentException.class,
            () -> NetworkMeeting.connect(UniqueId.ofBytes(bytes), 0, LONG)),
        "damaged");
    bytes[7] = 3;
    assertFalse(NetworkId.isOne(UniqueId.ofBytes(bytes)));
  }

  @Test
  void nothingSaysTheSecret() {
    NetworkId id = NetworkId.create(new InetSocketAddress(InetAddress.ofLiteral("::1"), 7));
    assertEquals("rendezvous " + id.name() + " at [0:0:0:0:0:0:0:1]:7", id.toString());
  }

  @Test
  void aRankTellsSoMuchAndNoMore() throws Exception {
    NetworkId id = newId();
    NetworkMeeting meeting = connect(id, 0, LONG);
    byte[] much = new byte[BytesTable.MAX_BYTES + 1];
    assertThrows(IllegalArgumentException.class, () -> meeting.join(joiner(0, 1), much));
    assertThrows(InvalidArgumentException.class, () -> meeting.join(joiner(1, 1), new byte[0]));
    meeting.join(joiner(0, 1), new byte[0]);
    assertThrows(IllegalArgumentException.class, () -> meeting.share(much));
  }

  // ---------------------------------------------------------------- who is missing, and who goes

  @Test
  void whoDidNotComeIsNamedToAll() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> patient = waiting(id, 0, 4);
    long start = System.nanoTime();
    String[] parts = {"2 of 4 ranks joined: ranks 0, 2 did, ranks 1, 3 did not", "waited 300 ms"};
    contains(assertThrows(DeadlineException.class, () -> meet(id, 2, 4, SOON)), parts);
    DeadlineException late = failure(DeadlineException.class, patient);
    contains(late, parts);
    assertEquals(List.of(1, 3), late.failedRanks());
    assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(3));
  }

  @Test
  void whoIsNotReadyIsNamedToAll() throws Exception {
    NetworkId id = newId();
    NetworkMeeting slow = connect(id, 1, LONG);
    Rank<List<byte[]>> quick = Rank.start(() -> meet(id, 0, 2, Duration.ofMillis(1_500)));
    slow.join(joiner(1, 2), bytes("brought", 1));
    slow.share(bytes("shared", 1));
    String[] parts = {"all 2 ranks joined", "rank 1 did not", "rank 0 waited 1500 ms"};
    contains(failure(DeadlineException.class, quick), parts);
    contains(assertThrows(DeadlineException.class, slow::agree), parts);
  }

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void whoRefusesSaysWhyToAll(boolean joined) throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> other = waiting(id, 0, 2);
    NetworkMeeting meeting = connect(id, 1, LONG);
    if (joined) {
      meeting.join(joiner(1, 2), bytes("brought", 1));
    }
    meeting.refuse(new SystemErrorException("its disk is full", ""));
    PeerFailedException heard = failure(PeerFailedException.class, other);
    assertEquals(1, heard.rank());
    contains(heard, "rank 1 (process " + ProcessHandle.current().pid() + ")", "its disk is full");
    if (!joined) {
      // Who comes late hears it, too.
      contains(
          assertThrows(PeerFailedException.class, () -> meet(id, 1, 2, LONG)), "its disk is full");
    }
  }

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void whoClosesIsNamed(boolean hasTable) throws Exception {
    NetworkId id = newId();
    int nranks = hasTable ? 2 : 3;
    NetworkMeeting leaver = connect(id, 1, LONG);
    Rank<List<byte[]>> join = Rank.start(() -> leaver.join(joiner(1, nranks), bytes("brought", 1)));
    join.await("answer");
    Rank<List<byte[]>> other = waiting(id, 0, nranks);
    if (hasTable) {
      join.get(30, TimeUnit.SECONDS);
    }
    leaver.close();
    PeerFailedException heard = failure(PeerFailedException.class, other);
    assertEquals(1, heard.rank());
    contains(heard, "rank 1", "it died or gave up");
    if (!hasTable) {
      failure(PeerFailedException.class, join);
    }
  }

  @ParameterizedTest
  @CsvSource({"meet, 3", "table, 2"})
  void whoIsKilledIsNamed(String how, int nranks) throws Exception {
    NetworkId id = newId();
    Meddler between = new Meddler(id, true, -1);
    ChildJvm victim = child(how, between.id(), nranks, 30_000, 1);
    Rank<List<byte[]>> other = waiting(id, 0, nranks);
    if (how.equals("table")) {
      victim.expect("table");
    }
    while (between.up.size() < HELLO_BYTES + 2 * Session.HEADER_BYTES + 1) {
      Thread.sleep(10);
    }
    Thread.sleep(100);
    victim.kill();
    PeerFailedException heard = failure(PeerFailedException.class, other);
    assertEquals(1, heard.rank());
    contains(heard, "rank 1 (process " + victim.pid() + ")");
  }

  @Test
  void whoServesIsKilled() throws Exception {
    ChildJvm server = closeLater(ChildJvm.start(JoinMain.class, "serve", 0));
    NetworkId id = NetworkId.of(UniqueId.parse(server.expect("id")));
    server.expect("joining");
    NetworkMeeting meeting = connect(id, 1, LONG);
    meeting.join(joiner(1, 2), new byte[] {1});
    server.stop();
    Rank<List<byte[]>> share = Rank.start(() -> meeting.share(new byte[0])).await("answer");
    server.kill();
    contains(failure(PeerFailedException.class, share), "rank 1 has lost the rendezvous at");
    // Its end closes the connections first; then others may take the port at once.
    server.await();
    NetworkId next = at(id.address().getPort(), "next");
    NetworkCreator.serve(next, null, Deadline.after(LONG));
    meetAll(next, 2);
  }

  // ---------------------------------------------------------------- contradictions

  @Test
  void twoRanksOfOneNumber() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> first = waiting(id, 1, 3);
    Rank<List<byte[]>> second = waiting(id, 1, 3);
    for (Rank<?> rank : List.of(first, second)) {
      contains(failure(InvalidUsageException.class, rank), "rank 1 was taken twice");
    }
  }

  @Test
  void otherNumbersOfRanks() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> first = waiting(id, 1, 3);
    Rank<List<byte[]>> second = waiting(id, 0, 2);
    for (Rank<?> rank : List.of(first, second)) {
      contains(failure(InvalidUsageException.class, rank), "joins 2", "joins 3");
    }
  }

  @Test
  void otherSecurity() throws Exception {
    NetworkId id = newId();
    List<Rank<List<byte[]>>> ranks = new ArrayList<>();
    for (String security : List.of("auth", "tls")) {
      int rank = ranks.size();
      ranks.add(
          Rank.start(
                  () ->
                      connect(id, rank, LONG)
                          .join(joiner(rank, 2).withSecurity(security), new byte[0]))
              .await("answer"));
    }
    for (Rank<?> rank : ranks) {
      contains(
          failure(InvalidUsageException.class, rank),
          "NCCL4J_NETWORK_SECURITY is tls for rank 1",
          ", auth for rank 0");
    }
  }

  @Test
  void otherBuilds() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> first = waiting(id, 0, 2);
    Seat own = Seat.withoutHeap(joiner(1, 2));
    Seat other =
        new Seat(own.joiner(), true, own.pids(), own.pid(), own.pageSize(), "9.9", own.host());
    try (Raw raw = new Raw(id)) {
      raw.greet();
      raw.sendSealed(Session.JOIN, encoded(other));
      ByteBuffer answer = ByteBuffer.wrap(raw.receive().body());
      assertEquals(Answer.FAILED, answer.get());
      contains(Failure.decode(answer).message(), "runs nccl4j 9.9");
    }
    contains(failure(InvalidUsageException.class, first), "rank 1", "runs nccl4j 9.9");
  }

  private static byte[] encoded(Seat seat) {
    ByteBuffer body = ByteBuffer.allocate(Seat.MAX_BYTES);
    seat.encode(body);
    return Arrays.copyOf(body.array(), body.position());
  }

  @Test
  void anIdIsUsedOnce() throws Exception {
    NetworkId id = newId();
    meetAll(id, 2);
    contains(
        assertThrows(InvalidUsageException.class, () -> meet(id, 0, 2, LONG)), "was used before");
  }

  @Test
  void anIdIsUsedSoon() throws Exception {
    NetworkId id = NetworkCreator.create(new InetSocketAddress(HERE, 0), Deadline.after(SOON));
    NetworkMeeting early = connect(id, 1, LONG);
    Thread.sleep(SOON.toMillis() + 200);
    contains(
        assertThrows(DeadlineException.class, () -> meet(id, 0, 2, LONG)),
        "no rank used the unique id within 300 ms");
    assertThrows(DeadlineException.class, () -> early.join(joiner(1, 2), new byte[0]));
  }

  @Test
  void otherSecrets() throws Exception {
    NetworkId id = newId();
    byte[] secret = id.secret().clone();
    secret[31] ^= 1;
    NetworkId wrong = new NetworkId(id.name(), secret, id.address());
    contains(
        assertThrows(InvalidUsageException.class, () -> meet(wrong, 0, 2, LONG)),
        "who listens at " + id.where() + " does not know the secret");
    try (Raw raw = new Raw(wrong)) {
      assertFalse(raw.hello(NetworkId.VERSION));
      raw.sendSealed(Session.PROOF, new byte[0]);
      Session.Packet refused = raw.receive();
      assertEquals(Session.REFUSED, refused.type());
      assertEquals(Session.WRONG_SECRET, refused.body()[0]);
    }
    meetAll(id, 2);
  }

  @Test
  void otherVersions() throws Exception {
    NetworkId id = newId();
    try (Raw raw = new Raw(id)) {
      assertFalse(raw.hello(NetworkId.VERSION + 1));
      assertEquals(Session.REFUSED, raw.last.type());
      assertEquals(Session.OTHER_VERSION, raw.last.body()[0]);
    }
    meetAll(id, 2);
    NetworkId older = at(new Answering(Session.OTHER_VERSION).port(), "x");
    contains(
        assertThrows(InvalidUsageException.class, () -> meet(older, 0, 2, LONG)),
        "another version of nccl4j serves the rendezvous at " + older.where());
  }

  /** A server that refuses the first who comes, and does not answer the others. */
  private final class Answering {
    private final ServerSocket listener = closeLater(new ServerSocket(0, 10, HERE));

    Answering(byte reason) throws IOException {
      Thread.ofPlatform()
          .daemon()
          .start(
              () -> {
                try (Socket socket = listener.accept()) {
                  socket.getInputStream().readNBytes(HELLO_BYTES);
                  byte[] packet = Session.plain(Session.REFUSED, new byte[] {reason});
                  socket.getOutputStream().write(packet);
                } catch (IOException e) {
                  throw new AssertionError(e);
                }
              });
    }

    int port() {
      return listener.getLocalPort();
    }
  }

  // ---------------------------------------------------------------- who serves

  @Test
  void whatIsServedLaterIsFound() throws Exception {
    int port = freePort();
    Rank<List<byte[]>> early = Rank.start(() -> meet(at(port, "x"), 1, 2, LONG)).await("sleep");
    NetworkCreator.serve(at(port, "another"), null, Deadline.after(LONG));
    Thread.sleep(300);
    assertFalse(early.isDone());
    NetworkCreator.serve(at(port, "x"), null, Deadline.after(LONG));
    meet(at(port, "x"), 0, 2, LONG);
    assertEquals(2, early.get(30, TimeUnit.SECONDS).size());
  }

  @Test
  void nobodyServes() throws Exception {
    NetworkId none = at(freePort(), "x");
    contains(
        assertThrows(DeadlineException.class, () -> meet(none, 3, 4, SOON)),
        "rank 3 could not reach the rendezvous at " + none.where() + " within 300 ms: ",
        "Connection refused",
        "NCCL4J_INIT_TIMEOUT");
    NetworkId other = at(newId().address().getPort(), "x");
    contains(
        assertThrows(DeadlineException.class, () -> meet(other, 3, 4, Duration.ofSeconds(2))),
        "it does not serve this communicator (yet, or any more)");
    ServerSocket silent = closeLater(new ServerSocket(0, 10, HERE));
    contains(
        assertThrows(
            DeadlineException.class, () -> meet(at(silent.getLocalPort(), "x"), 3, 4, SOON)),
        "within 300 ms: it does not answer");
    NetworkId once = at(new Answering(Session.UNKNOWN).port(), "x");
    contains(
        assertThrows(DeadlineException.class, () -> meet(once, 3, 4, Duration.ofSeconds(2))),
        "within 2000 ms: it does not answer; before: it does not serve this communicator");
  }

  @Test
  void whoeverEndsTheConnectionIsTriedAgain() throws Exception {
    try (ServerSocket rude = new ServerSocket(0, 10, HERE)) {
      Thread.ofPlatform()
          .daemon()
          .start(
              () -> {
                try {
                  while (true) {
                    rude.accept().close();
                  }
                } catch (IOException e) {
                  // At the end.
                }
              });
      String message =
          assertThrows(
                  DeadlineException.class, () -> meet(at(rude.getLocalPort(), "x"), 3, 4, SOON))
              .getMessage();
      assertFalse(message.contains("null"), message);
    }
  }

  @Test
  void portsThatAreTakenAreNamed() throws Exception {
    ServerSocket taken = closeLater(new ServerSocket(0, 10, HERE));
    NetworkId id = at(taken.getLocalPort(), "x");
    SystemErrorException e =
        assertThrows(
            SystemErrorException.class, () -> NetworkCreator.serve(id, null, Deadline.after(LONG)));
    contains(e, "127.0.0.1, TCP port " + taken.getLocalPort(), "choose an address");
    assertInstanceOf(BindException.class, e.getCause());
  }

  // ---------------------------------------------------------------- interrupts

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void interruptsEndEveryWait(boolean virtual) throws Exception {
    NetworkId none = at(freePort(), "x");
    interrupted(virtual, () -> meet(none, 1, 2, LONG));
    ServerSocket silent = closeLater(new ServerSocket(0, 10, HERE));
    interrupted(virtual, () -> meet(at(silent.getLocalPort(), "x"), 1, 2, LONG));
    interrupted(virtual, () -> meet(newId(), 1, 2, LONG));
    interrupted(
        virtual,
        () -> {
          NetworkMeeting meeting = connect(newId(), 1, LONG);
          return meeting.join(joiner(1, 2), new byte[0]);
        });
  }

  @ParameterizedTest
  @CsvSource({"false", "true"})
  void whoIsInterruptedIsNamed(boolean hasTable) throws Exception {
    NetworkId id = newId();
    int nranks = hasTable ? 2 : 3;
    Rank<List<byte[]>> other = waiting(id, 0, nranks);
    Rank<List<byte[]>> interrupted =
        Rank.start(
            () -> {
              NetworkMeeting meeting = connect(id, 1, LONG);
              meeting.join(joiner(1, nranks), new byte[0]);
              Thread.currentThread().interrupt();
              return meeting.share(new byte[0]);
            });
    if (!hasTable) {
      interrupted.await("answer").thread.interrupt();
    }
    failure(InterruptedWaitException.class, interrupted);
    assertEquals(1, failure(PeerFailedException.class, other).rank());
  }

  private static void interrupted(boolean virtual, Callable<?> wait) throws Exception {
    for (long millis : new long[] {0, 300}) {
      CompletableFuture<Boolean> flag = new CompletableFuture<>();
      Rank<Object> rank =
          new Rank<>(
              () -> {
                try {
                  return wait.call();
                } finally {
                  flag.complete(Thread.currentThread().isInterrupted());
                }
              },
              virtual);
      rank.thread.start();
      Thread.sleep(millis);
      long start = System.nanoTime();
      rank.thread.interrupt();
      contains(failure(InterruptedWaitException.class, rank), "rank 1 was interrupted");
      assertTrue(flag.join(), "the flag is lost");
      assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(2));
    }
  }

  // ---------------------------------------------------------------- strangers

  /** A connection that speaks by itself. */
  private static final class Raw implements AutoCloseable {
    final Socket socket = new Socket();
    final PacketStream packets;
    final Session session;
    final NetworkId id;
    Session.Packet last;

    Raw(NetworkId id) throws IOException {
      this.id = id;
      socket.connect(id.address());
      packets = new PacketStream(socket);
      session = new Session(id.name(), id.secret(), false);
    }

    /** Whether the other side has proved to know the secret. */
    boolean hello(int version) throws IOException {
      byte[] nonce = RendezvousId.random(Session.NONCE_BYTES);
      packets.send(Session.plain(Session.HELLO, helloBody(id, version, nonce)));
      last = receive();
      session.nonces(nonce, last.body());
      return last.type() == Session.PROOF && session.verify(last);
    }

    void greet() throws IOException {
      assertTrue(hello(NetworkId.VERSION));
      sendSealed(Session.PROOF, new byte[0]);
    }

    void sendSealed(byte type, byte[] body) throws IOException {
      packets.send(session.seal(type, body));
    }

    Session.Packet receive() throws IOException {
      return packets.receive(1 << 20, Deadline.after(LONG));
    }

    @Override
    public void close() throws IOException {
      packets.close();
    }
  }

  private static byte[] helloBody(NetworkId id, int version, byte[] nonce) {
    return ByteBuffer.allocate(52)
        .putInt(version)
        .putLong(id.name().getMostSignificantBits())
        .putLong(id.name().getLeastSignificantBits())
        .put(nonce)
        .array();
  }

  private Socket stranger(NetworkId id) throws IOException {
    return closeLater(new Socket(HERE, id.address().getPort()));
  }

  @Test
  void strangersDoNoHarm() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> first = waiting(id, 1, 2);
    Random random = new Random(1);
    for (int i = 0; i < 100; i++) {
      // A port scan, and noise.
      try (Socket socket = stranger(id)) {
        socket.getOutputStream().write(RendezvousTest.random(random, random.nextInt(200)));
      } catch (IOException e) {
        // It is closed while that is written.
      }
    }
    for (int length : new int[] {Integer.MAX_VALUE, -1, 1 << 20, 53}) {
      Socket socket = stranger(id);
      byte[] packet = Session.plain(Session.HELLO, new byte[52]);
      socket.getOutputStream().write(ByteBuffer.wrap(packet).putInt(4, length).array());
      assertEnds(socket);
    }
    assertFalse(first.isDone());
    meet(id, 0, 2, LONG);
    first.get(30, TimeUnit.SECONDS);
  }

  private static void assertEnds(Socket socket) throws IOException {
    socket.setSoTimeout(5_000);
    try {
      assertEquals(-1, socket.getInputStream().read());
    } catch (SocketTimeoutException e) {
      throw new AssertionError("it was not closed", e);
    } catch (IOException e) {
      // Reset.
    }
  }

  @Test
  void theSilentKeepNobodyOut() throws Exception {
    NetworkId id = newId();
    NetworkMeeting known = connect(id, 0, LONG);
    for (int i = 0; i < 200; i++) {
      Socket socket = stranger(id);
      if (i % 2 == 0) {
        // Half of them begin to speak.
        byte[] hello = Session.plain(Session.HELLO, helloBody(id, NetworkId.VERSION, new byte[32]));
        socket.getOutputStream().write(hello, 0, 1 + i % hello.length);
      }
    }
    long start = System.nanoTime();
    Rank<List<byte[]>> late = Rank.start(() -> meet(id, 1, 2, LONG));
    // Who has proved who it is takes its time.
    known.join(joiner(0, 2), new byte[0]);
    known.share(new byte[0]);
    known.agree();
    assertEquals(2, late.get(30, TimeUnit.SECONDS).size());
    long millis = TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - start);
    assertTrue(millis < 8_000, millis + " ms");
  }

  /** Slow bytes do not prolong a wait, and those that came before its end are not lost. */
  @Test
  void packetsComeInPieces() throws Exception {
    ServerSocket listener = closeLater(new ServerSocket(0, 1, HERE));
    Socket sender = closeLater(new Socket(HERE, listener.getLocalPort()));
    try (PacketStream packets = new PacketStream(listener.accept())) {
      byte[] packet = Session.plain(Session.FETCH, new byte[20]);
      Rank<Boolean> dribble =
          Rank.start(
              () -> {
                for (byte b : packet) {
                  sender.getOutputStream().write(b);
                  Thread.sleep(20);
                }
                return true;
              });
      long start = System.nanoTime();
      assertThrows(SocketTimeoutException.class, () -> packets.receive(20, Deadline.after(SOON)));
      assertTrue(System.nanoTime() - start < TimeUnit.MILLISECONDS.toNanos(900));
      assertEquals(Session.FETCH, packets.receive(20, Deadline.never()).type());
      assertTrue(dribble.get(30, TimeUnit.SECONDS));
      sender.getOutputStream().write(packet, 0, 50);
      sender.close();
      assertThrows(EOFException.class, () -> packets.receive(20, Deadline.never()));
    }
  }

  /** Between a rank and its rendezvous: passes on, records, and changes one byte. */
  private final class Meddler {
    final ByteArrayOutputStream up = new ByteArrayOutputStream();
    final ByteArrayOutputStream down = new ByteArrayOutputStream();
    private final ServerSocket listener = closeLater(new ServerSocket(0, 10, HERE));
    private final NetworkId target;
    private final boolean upwards;

    /** Which byte of the first connection is still to be changed, or negative. */
    private final int at;

    Meddler(NetworkId target, boolean upwards, int at) throws IOException {
      this.target = target;
      this.upwards = upwards;
      this.at = at;
      Thread.ofPlatform().daemon().start(this::serve);
    }

    NetworkId id() {
      return new NetworkId(
          target.name(), target.secret(), new InetSocketAddress(HERE, listener.getLocalPort()));
    }

    private void serve() {
      boolean first = true;
      try {
        while (true) {
          Socket near = listener.accept();
          Socket far = new Socket();
          far.connect(target.address());
          int flip = first ? at : -1;
          first = false;
          Thread.ofVirtual().start(() -> pump(near, far, up, upwards ? flip : -1));
          Thread.ofVirtual().start(() -> pump(far, near, down, upwards ? -1 : flip));
        }
      } catch (IOException e) {
        // At the end.
      }
    }

    private static void pump(Socket from, Socket to, ByteArrayOutputStream record, int flip) {
      int at = 0;
      byte[] buffer = new byte[4096];
      try (from;
          to) {
        InputStream in = from.getInputStream();
        OutputStream out = to.getOutputStream();
        for (int n = in.read(buffer); n >= 0; n = in.read(buffer)) {
          if (flip >= at && flip < at + n) {
            buffer[flip - at] ^= 4;
          }
          at += n;
          record.write(buffer, 0, n);
          out.write(buffer, 0, n);
        }
      } catch (IOException e) {
        // The other direction has ended.
      }
    }
  }

  /** A byte of each field of HELLO, PROOF, JOIN and SHARE. */
  @Test
  void whatIsChangedOnItsWayIsNotHeard() throws Exception {
    int proof = HELLO_BYTES;
    int join = proof + Session.HEADER_BYTES;
    int share = join + Session.HEADER_BYTES + encoded(Seat.withoutHeap(joiner(0, 1))).length;
    int[] changes =
        IntStream.of(0, proof, join, share)
            .flatMap(packet -> IntStream.of(0, 2, 3, 4, 7, 8, 39).map(field -> packet + field))
            .toArray();
    changes =
        IntStream.concat(
                Arrays.stream(changes),
                IntStream.of(43, 44, 59, 60, 91, join + 40, join + 47, join + 90, share - 1))
            .toArray();
    for (int change : changes) {
      NetworkId id = newId();
      Meddler meddler = new Meddler(id, true, change);
      boolean met = meets(meddler.id());
      // Before a rank has proved who it is, it may try again; what is unsigned may change.
      assertTrue(!met || change < join, change + " was not noticed");
      if (!met && change < share) {
        assertEquals(1, meet(id, 0, 1, LONG).size(), "byte " + change + " has ended it");
      }
    }
  }

  private static boolean meets(NetworkId id) {
    try {
      return meet(id, 0, 1, Duration.ofMillis(1_500)).size() == 1;
    } catch (NcclException e) {
      assertFalse(e.getMessage().contains("null"), e.getMessage());
      return false;
    }
  }

  /** PROOF, and the table. */
  @Test
  void whatIsChangedOnItsWayBackIsNotHeard() throws Exception {
    int table = Session.HEADER_BYTES + Session.NONCE_BYTES;
    for (int change :
        new int[] {8, 39, 40, 71, table, table + 2, table + 4, table + 7, table + 8, table + 40}) {
      assertFalse(meets(new Meddler(newId(), false, change).id()), change + " was not noticed");
    }
  }

  /** Its process may end as soon as rank 0 goes on: the verdict is on its way to all by then. */
  @Test
  void nobodyGoesOnBeforeAllAreTold() throws Exception {
    for (int round = 0; round < 40; round++) {
      NetworkId id = newId();
      Rank<NetworkMeeting> first =
          Rank.start(
              () -> {
                NetworkMeeting meeting = NetworkMeeting.connect(id, 0, Deadline.after(LONG));
                meeting.join(joiner(0, 2), new byte[1]);
                meeting.share(new byte[1]);
                return meeting;
              });
      try (Raw raw = new Raw(id)) {
        raw.greet();
        raw.sendSealed(Session.JOIN, encoded(Seat.withoutHeap(joiner(1, 2))));
        assertTrue(raw.session.verify(raw.receive()));
        raw.sendSealed(Session.SHARE, new byte[1]);
        assertTrue(raw.session.verify(raw.receive()));
        raw.sendSealed(Session.READY, new byte[0]);
        try (NetworkMeeting meeting = first.get(30, TimeUnit.SECONDS)) {
          meeting.agree();
          assertTrue(raw.socket.getInputStream().available() > 0, "rank 1 is not told yet");
        }
      }
    }
  }

  @Test
  void whatMembersSaySecondIsSigned() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> other = waiting(id, 0, 2);
    try (Raw raw = new Raw(id)) {
      raw.greet();
      raw.sendSealed(Session.JOIN, encoded(Seat.withoutHeap(joiner(1, 2))));
      assertTrue(raw.session.verify(raw.receive()));
      byte[] ready = raw.session.seal(Session.READY, new byte[0]);
      ready[20] ^= 1;
      raw.packets.send(ready);
      contains(
          failure(PeerFailedException.class, other), "rank 1", "a packet was changed on its way");
    }
  }

  @Test
  void membersThatBreakTheRulesEndIt() throws Exception {
    NetworkId id = newId();
    Rank<List<byte[]>> other = waiting(id, 0, 2);
    try (Raw raw = new Raw(id)) {
      raw.greet();
      raw.sendSealed(Session.JOIN, encoded(Seat.withoutHeap(joiner(1, 2))));
      raw.sendSealed(Session.SHARE, new byte[BytesTable.MAX_BYTES + 1]);
      contains(failure(PeerFailedException.class, other), "rank 1", "its connection broke");
    }
  }

  /** The id by which the ranks of a host meet goes through the network, too. */
  @Test
  void whoReadsAlongLearnsNoSecret() throws Exception {
    NetworkId id = newId();
    Meddler meddler = new Meddler(id, true, -1);
    List<Callable<Boolean>> ranks = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      int rank = i;
      ranks.add(
          () -> {
            Device device = Device.get(Backend.HOST, 0);
            UniqueId tapped = meddler.id().toUniqueId();
            Communicator.initRank(device, 2, tapped, rank).close();
            return true;
          });
    }
    Ranks.run(ranks);
    byte[] heard = meddler.down.toByteArray();
    int at = new String(heard, StandardCharsets.ISO_8859_1).indexOf("NCCL4J");
    assertTrue(at > 0, "the id of the host");
    byte[] idOfHost = Arrays.copyOfRange(heard, at, at + UniqueId.BYTES);
    assertEquals(RendezvousId.VERSION, IdBytes.version(idOfHost));
    contains(
        assertThrows(InvalidArgumentException.class, () -> RendezvousId.parse(idOfHost)),
        "damaged");
    // Who knows the secret of all ranks reads it, and nobody else.
    assertTrue(RendezvousId.parse(IdBytes.hide(idOfHost, id.secret())).ownedHere());
    byte[] guessed = IdBytes.hide(idOfHost, new byte[id.secret().length]);
    assertThrows(InvalidArgumentException.class, () -> RendezvousId.parse(guessed));
  }

  @Test
  void aRecordedConversationIsOfNoUse() throws Exception {
    NetworkId id = newId();
    Meddler meddler = new Meddler(id, true, -1);
    Rank<List<byte[]>> recorded = waiting(meddler.id(), 1, 2);
    byte[] conversation = meddler.up.toByteArray();
    assertTrue(conversation.length > 2 * HELLO_BYTES);
    for (int i = 0; i < 3; i++) {
      try (Socket socket = stranger(id)) {
        socket.getOutputStream().write(conversation);
        InputStream in = socket.getInputStream();
        Session.Packet proof = Session.parse(in.readNBytes(72));
        assertEquals(Session.PROOF, proof.type());
        Session.Packet refused = Session.parse(in.readNBytes(41));
        assertEquals(Session.REFUSED, refused.type());
        assertEnds(socket);
      }
    }
    meet(id, 0, 2, LONG);
    recorded.get(30, TimeUnit.SECONDS);
    assertNotEquals(0, meddler.down.size());
  }

  // ---------------------------------------------------------------- what is left

  @Test
  void thePortIsClosedAtTheEnd() throws Exception {
    NetworkId id = at(freePort(), "short");
    NetworkCreator.serve(id, null, Deadline.after(LINGER));
    int port = id.address().getPort();
    Socket silent = stranger(id);
    meetAll(id, 2);
    long start = System.nanoTime();
    assertThrows(BindException.class, () -> new ServerSocket(port, 1, HERE).close());
    while (!isFree(port)) {
      assertTrue(System.nanoTime() - start < LINGER.plusSeconds(3).toNanos());
      Thread.sleep(20);
    }
    assertEnds(silent);
    String thread = "nccl4j-port-" + port;
    while (Thread.getAllStackTraces().keySet().stream().anyMatch(t -> t.getName().equals(thread))) {
      Thread.sleep(1);
    }
    NetworkCreator.serve(at(port, "next"), null, Deadline.after(LONG));
    meetAll(at(port, "next"), 2);
  }

  private static boolean isFree(int port) throws IOException {
    try (ServerSocket socket = new ServerSocket(port, 1, HERE)) {
      return socket.isBound();
    } catch (BindException e) {
      return false;
    }
  }

  /** The end of the first one does not end the second. */
  @Test
  void anIdIsServedAnew() throws Exception {
    NetworkId id = at(freePort(), "again");
    for (int i = 0; i < 2; i++) {
      NetworkCreator.serve(id, null, Deadline.after(LINGER));
      meetAll(id, 2);
    }
    NetworkCreator.serve(id, null, Deadline.after(LONG));
    // Longer than what came of the last meeting is told, so that its end is not this one's.
    Thread.sleep(LINGER.toMillis() + 300);
    meetAll(id, 2);
  }

  @Test
  void nothingIsLeft() throws Exception {
    ChildJvm child = closeLater(ChildJvm.start(SHORT, JoinMain.class, "meetings", 5));
    assertEquals("0 0 0", child.expect("left"));
  }

  @Test
  void noExitIsHeldUp() throws Exception {
    ChildJvm child = closeLater(ChildJvm.start(JoinMain.class, "offer"));
    child.expect("id");
    long start = System.nanoTime();
    assertEquals(0, child.await());
    assertTrue(System.nanoTime() - start < TimeUnit.SECONDS.toNanos(4));
  }
}

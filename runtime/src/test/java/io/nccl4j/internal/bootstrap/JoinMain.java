package io.nccl4j.internal.bootstrap;

import io.nccl4j.Backend;
import io.nccl4j.NcclException;
import io.nccl4j.UniqueId;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.bindings.UnixSockets;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * A process of ranks.
 *
 * <p>{@code unused COUNT}: makes so many ids, and prints what is left of them after a while. {@code
 * flood ID COUNT}: opens so many connections as another user, prints a line and waits.
 *
 * <p>{@code join ID NRANKS MILLIS RANK...}: joins with a thread per rank and prints one line for
 * each; {@code virtual} does so with virtual threads. {@code create}: prints an id and waits for a
 * line on its input. {@code leave FILE...}: makes one, leaves it in files and waits. {@code
 * threads}: two ranks of this process, with no heap.
 *
 * <p>Over TCP, {@code meet ID NRANKS MILLIS RANK...}: a thread per rank, one line for each; {@code
 * table} prints another line when a rank has the table, and goes no further. {@code serve PORT}:
 * serves a rendezvous, prints its id, joins as rank 0 of 2 and waits; {@code offer}: prints an id
 * and ends. {@code meetings COUNT}: so many of them, then prints what is left after a while.
 */
public final class JoinMain {
  private static final long INIT_TIMEOUT_MILLIS = 1_000;

  private static final int NOBODY = 65534;
  private static final Duration PATIENCE = Duration.ofSeconds(30);
  private static final UUID PROCESS = UUID.randomUUID();

  private JoinMain() {}

  public static void main(String[] args) throws Exception {
    switch (args[0]) {
      case "join" -> join(args, Executors.newCachedThreadPool());
      case "virtual" -> join(args, Executors.newVirtualThreadPerTaskExecutor());
      case "create" -> {
        System.out.println("id " + HexFormat.of().formatHex(Rendezvous.createUniqueId()));
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8)).readLine();
      }
      case "threads" -> threads();
      case "meet", "table" -> meet(args);
      case "serve" -> {
        InetSocketAddress at =
            new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(args[1]));
        UniqueId id = NetworkCreator.create(at, Deadline.after(PATIENCE)).toUniqueId();
        System.out.println("id " + id);
        System.out.println(meet(id, 0, 2, PATIENCE, false));
      }
      case "offer" ->
          System.out.println(
              "id " + NetworkMeeting.createUniqueId(InetAddress.getLoopbackAddress()));
      case "meetings" -> meetings(Integer.parseInt(args[1]));
      case "leave" -> {
        UniqueId id = UniqueId.create(Backend.HOST);
        for (int i = 1; i < args.length; i++) {
          id.writeTo(Path.of(args[i]));
        }
        System.out.println("id " + id);
        System.in.read();
      }
      case "unused" -> unused(Integer.parseInt(args[1]));
      case "flood" -> flood(HexFormat.of().parseHex(args[1]), Integer.parseInt(args[2]));
      default -> throw new IllegalArgumentException(args[0]);
    }
  }

  private static void join(String[] args, ExecutorService threads) throws Exception {
    byte[] id = HexFormat.of().parseHex(args[1]);
    int nranks = Integer.parseInt(args[2]);
    Duration timeout = Duration.ofMillis(Long.parseLong(args[3]));
    TestHeap heap = new TestHeap();
    List<Callable<String>> ranks = new ArrayList<>();
    for (int i = 4; i < args.length; i++) {
      int rank = Integer.parseInt(args[i]);
      ranks.add(
          () -> {
            System.out.println("joining " + rank);
            try (Membership membership = heap.join(id, rank, nranks, timeout)) {
              Member self = membership.members().get(rank);
              if (self.pid() != ProcessHandle.current().pid()
                  || !self.process().equals(heap.process)
                  || membership.controlOffset() != 4096) {
                throw new AssertionError("wrong table " + membership.members());
              }
              return "joined "
                  + membership.members().size()
                  + " peers "
                  + heap.checkPeers(membership);
            } catch (NcclException e) {
              return "failed " + e.getClass().getSimpleName() + ": " + e.getMessage();
            }
          });
    }
    Ranks.run(threads, ranks).forEach(System.out::println);
  }

  private static void meet(String[] args) throws Exception {
    UniqueId id = UniqueId.parse(args[1]);
    int nranks = Integer.parseInt(args[2]);
    Duration timeout = Duration.ofMillis(Long.parseLong(args[3]));
    List<Callable<String>> ranks = new ArrayList<>();
    for (int i = 4; i < args.length; i++) {
      int rank = Integer.parseInt(args[i]);
      ranks.add(() -> meet(id, rank, nranks, timeout, args[0].equals("table")));
    }
    Ranks.run(ranks).forEach(System.out::println);
  }

  private static String meet(
      UniqueId id, int rank, int nranks, Duration timeout, boolean onlyTable) {
    System.out.println("joining " + rank);
    try (NetworkMeeting meeting = NetworkMeeting.connect(id, rank, timeout)) {
      Joiner joiner = new Joiner(rank, nranks, PROCESS, 77, -1, 0, rank == 0 ? 0 : -1);
      String brought =
          meeting.join(joiner, new byte[] {(byte) rank}).stream()
              .map(bytes -> bytes.length == 0 ? "-" : Byte.toString(bytes[0]))
              .collect(Collectors.joining(" "));
      if (onlyTable) {
        System.out.println("table " + brought);
        System.in.read();
      }
      meeting.share(new byte[] {1});
      meeting.agree();
      return "met " + brought;
    } catch (NcclException e) {
      return "failed " + e.getClass().getSimpleName() + ": " + e.getMessage();
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * One after the other, the first for what stays: one that succeeds, one that fails, one that
   * nobody uses; a stranger at the port. With an init timeout of 1 s.
   */
  private static void meetings(int count) throws Exception {
    int threads = 0;
    int descriptors = 0;
    for (int i = 0; i <= count; i++) {
      InetAddress here = InetAddress.getLoopbackAddress();
      UniqueId id = NetworkMeeting.createUniqueId(here);
      Socket silent = new Socket(here, NetworkId.of(id).address().getPort());
      Ranks.run(
          List.of(() -> meet(id, 0, 2, PATIENCE, false), () -> meet(id, 1, 2, PATIENCE, false)));
      meet(NetworkMeeting.createUniqueId(here), 0, 2, Duration.ofMillis(300), false);
      NetworkMeeting.createUniqueId(here);
      silent.close();
      if (i == 0) {
        Thread.sleep(4 * INIT_TIMEOUT_MILLIS);
        threads = threadCount();
        descriptors = descriptorCount();
      }
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(15);
    while ((threadCount() > threads || descriptorCount() > descriptors)
        && System.nanoTime() < end) {
      Thread.sleep(20);
    }
    System.out.println(
        "left " + threads + " " + threadCount() + " " + (descriptorCount() - descriptors));
  }

  private static void threads() throws Exception {
    byte[] id = Rendezvous.createUniqueId();
    UUID process = UUID.randomUUID();
    List<Callable<String>> ranks = new ArrayList<>();
    for (int i = 0; i < 2; i++) {
      int rank = i;
      ranks.add(
          () -> {
            Joiner joiner = new Joiner(rank, 2, process, 1, -1, 0, rank == 0 ? 0 : -1);
            try (Membership m = Rendezvous.join(id, joiner, Duration.ofSeconds(10))) {
              return "joined " + m.members().size();
            }
          });
    }
    Ranks.run(ranks).forEach(System.out::println);
    System.out.println("id " + HexFormat.of().formatHex(Rendezvous.createUniqueId()));
    System.in.read();
  }

  private static void unused(int count) throws Exception {
    // What the first one links and loads stays.
    byte[] first = Rendezvous.createUniqueId();
    int threads = threadCount() - 1;
    int descriptors = descriptorCount() - 2;
    for (int i = 1; i < count; i++) {
      Rendezvous.createUniqueId();
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(20);
    while ((threadCount() > threads || descriptorCount() > descriptors)
        && System.nanoTime() < end) {
      Thread.sleep(20);
    }
    System.out.println(
        "left " + (threadCount() - threads) + " " + (descriptorCount() - descriptors));
    try {
      Joiner joiner = new Joiner(0, 1, UUID.randomUUID(), 1, -1, 0, 0);
      Rendezvous.join(first, joiner, Duration.ofSeconds(10)).close();
      System.out.println("joined");
    } catch (NcclException e) {
      System.out.println("failed " + e.getClass().getSimpleName() + ": " + e.getMessage());
    }
  }

  private static int threadCount() {
    return (int)
        Thread.getAllStackTraces().keySet().stream()
            .filter(thread -> thread.getName().startsWith("nccl4j-"))
            .count();
  }

  private static int descriptorCount() {
    return new File("/proc/self/fd").list().length;
  }

  /** Becomes somebody else: what is needed from now on was loaded before. */
  @SuppressWarnings("restricted") // a user that the project itself never becomes
  private static void flood(byte[] bytes, int count) throws Exception {
    RendezvousId id = RendezvousId.parse(bytes);
    List<Integer> sockets = new ArrayList<>();
    connect(id, sockets);
    Descriptors.close(sockets.removeFirst());
    Linker linker = Linker.nativeLinker();
    MethodHandle setuid =
        linker.downcallHandle(
            linker.defaultLookup().find("setuid").orElseThrow(),
            FunctionDescriptor.of(ValueLayout.JAVA_INT, ValueLayout.JAVA_INT));
    if (invoke(setuid, NOBODY) != 0) {
      throw new IllegalStateException("setuid failed");
    }
    long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(5);
    int refused = 0;
    while (sockets.size() < count && System.nanoTime() < end) {
      if (!connect(id, sockets)) {
        // The queue is full: all places are taken, for now.
        refused++;
        Thread.sleep(1);
      }
    }
    System.out.println("flooding with " + sockets.size() + ", full " + refused);
    System.in.read();
  }

  private static int invoke(MethodHandle setuid, int user) {
    try {
      return (int) setuid.invokeExact(user);
    } catch (Throwable e) {
      throw new IllegalStateException(e);
    }
  }

  private static boolean connect(RendezvousId id, List<Integer> sockets) {
    int socket = UnixSockets.socket(Creator.SOCKET_TYPE);
    try {
      UnixSockets.connectAbstract(socket, id.socketName());
      sockets.add(socket);
      return true;
    } catch (LibcException e) {
      Descriptors.close(socket);
      return false;
    }
  }
}

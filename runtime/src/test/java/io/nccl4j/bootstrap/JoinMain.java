package io.nccl4j.bootstrap;

import io.nccl4j.NcclException;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * A process of ranks.
 *
 * <p>{@code join ID NRANKS MILLIS RANK...}: joins with a thread per rank and prints one line for
 * each; {@code virtual} does so with virtual threads. {@code create}: prints an id and waits for a
 * line on its input. {@code threads}: two ranks of this process, with no heap.
 */
public final class JoinMain {
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
}

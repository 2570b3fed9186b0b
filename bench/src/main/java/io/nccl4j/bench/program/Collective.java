package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.Group;
import io.nccl4j.bench.program.RankCall.Sizes;
import java.util.function.Consumer;

/**
 * The operations of a communicator: who sends and who receives, how buffers are divided, how
 * bandwidth is counted, and how each is called. The programs, the self test and the benchmarks read
 * that here, and none of them asks which operation it is.
 */
public enum Collective {
  /** See {@link Communicator#allReduce}. */
  ALL_REDUCE(
      "allReduce",
      Content.REDUCED,
      Root.NONE,
      Blocks.EVEN,
      Counts.ONE,
      c ->
          c.communicator().allReduce(c.send(), c.recv(), c.count(), c.type(), c.op(), c.stream())) {
    @Override
    public double busFactor(int nranks) {
      // Each block goes to the rank that reduces it, and back.
      return 2.0 * (nranks - 1) / nranks;
    }
  },
  /** See {@link Communicator#reduce}. */
  REDUCE(
      "reduce",
      Content.REDUCED,
      Root.RECEIVES,
      Blocks.EVEN,
      Counts.ONE,
      c ->
          c.communicator()
              .reduce(c.send(), c.rootRecv(), c.count(), c.type(), c.op(), c.root(), c.stream())),
  /** See {@link Communicator#reduceScatter}. */
  REDUCE_SCATTER(
      "reduceScatter",
      Content.REDUCED,
      Root.NONE,
      Blocks.SCATTERED,
      Counts.ONE,
      c ->
          c.communicator()
              .reduceScatter(c.send(), c.recv(), c.count(), c.type(), c.op(), c.stream())),
  /** See {@link Communicator#reduceScatterV}. */
  REDUCE_SCATTER_V(
      "reduceScatterV",
      Content.REDUCED,
      Root.NONE,
      Blocks.SCATTERED,
      Counts.EACH,
      c -> {
        long[] counts = c.sizes().sendCounts();
        c.communicator().reduceScatterV(c.send(), c.recv(), counts, c.type(), c.op(), c.stream());
      }),
  /** See {@link Communicator#broadcast}. */
  BROADCAST(
      "broadcast",
      Content.MOVED,
      Root.SENDS,
      Blocks.EVEN,
      Counts.ONE,
      c ->
          c.communicator()
              .broadcast(c.rootSend(), c.recv(), c.count(), c.type(), c.root(), c.stream())),
  /** See {@link Communicator#allGather}. */
  ALL_GATHER(
      "allGather",
      Content.MOVED,
      Root.NONE,
      Blocks.GATHERED,
      Counts.ONE,
      c -> c.communicator().allGather(c.send(), c.recv(), c.count(), c.type(), c.stream())),
  /** See {@link Communicator#allGatherV}. */
  ALL_GATHER_V(
      "allGatherV",
      Content.MOVED,
      Root.NONE,
      Blocks.GATHERED,
      Counts.EACH,
      c -> {
        Sizes s = c.sizes();
        c.communicator()
            .allGatherV(c.send(), c.recv(), s.recvCounts(), s.recvStarts(), c.type(), c.stream());
      }),
  /** See {@link Communicator#allToAll}. */
  ALL_TO_ALL(
      "allToAll",
      Content.MOVED,
      Root.NONE,
      Blocks.EXCHANGED,
      Counts.ONE,
      c -> c.communicator().allToAll(c.send(), c.recv(), c.count(), c.type(), c.stream())),
  /** See {@link Communicator#allToAllV}. */
  ALL_TO_ALL_V(
      "allToAllV",
      Content.MOVED,
      Root.NONE,
      Blocks.EXCHANGED,
      Counts.EACH,
      c -> {
        Sizes s = c.sizes();
        c.communicator()
            .allToAllV(
                c.send(),
                s.sendCounts(),
                s.sendStarts(),
                c.recv(),
                s.recvCounts(),
                s.recvStarts(),
                c.type(),
                c.stream());
      }),
  /** See {@link Communicator#gather}. */
  GATHER(
      "gather",
      Content.MOVED,
      Root.RECEIVES,
      Blocks.GATHERED,
      Counts.ONE,
      c ->
          c.communicator()
              .gather(c.send(), c.rootRecv(), c.count(), c.type(), c.root(), c.stream())),
  /** See {@link Communicator#gatherV}. */
  GATHER_V(
      "gatherV",
      Content.MOVED,
      Root.RECEIVES,
      Blocks.GATHERED,
      Counts.EACH,
      c -> {
        Sizes s = c.sizes();
        c.communicator()
            .gatherV(
                c.send(),
                s.recvCounts()[c.communicator().rank()],
                c.rootRecv(),
                c.isRoot() ? s.recvCounts() : null,
                c.isRoot() ? s.recvStarts() : null,
                c.type(),
                c.root(),
                c.stream());
      }),
  /** See {@link Communicator#scatter}. */
  SCATTER(
      "scatter",
      Content.MOVED,
      Root.SENDS,
      Blocks.SCATTERED,
      Counts.ONE,
      c ->
          c.communicator()
              .scatter(c.rootSend(), c.recv(), c.count(), c.type(), c.root(), c.stream())),
  /** See {@link Communicator#scatterV}. */
  SCATTER_V(
      "scatterV",
      Content.MOVED,
      Root.SENDS,
      Blocks.SCATTERED,
      Counts.EACH,
      c -> {
        Sizes s = c.sizes();
        c.communicator()
            .scatterV(
                c.rootSend(),
                c.isRoot() ? s.sendCounts() : null,
                c.isRoot() ? s.sendStarts() : null,
                c.recv(),
                s.sendCounts()[c.communicator().rank()],
                c.type(),
                c.root(),
                c.stream());
      }),
  /** To the next rank and from the one before, in a group. */
  SEND_RECV(
      "send, recv",
      Content.MOVED,
      Root.NONE,
      Blocks.RING,
      Counts.ONE,
      c -> {
        int nranks = c.communicator().nranks();
        int rank = c.communicator().rank();
        try (Group group = Group.start()) {
          c.communicator().send(c.send(), c.count(), c.type(), (rank + 1) % nranks, c.stream());
          c.communicator()
              .recv(c.recv(), c.count(), c.type(), (rank + nranks - 1) % nranks, c.stream());
          group.launch();
        }
      }),
  /** What {@link #ALL_TO_ALL_V} does, as a group of sends and receives. */
  EXCHANGE(
      "send, recv, all pairs",
      Content.MOVED,
      Root.NONE,
      Blocks.EXCHANGED,
      Counts.EACH,
      c -> {
        Sizes s = c.sizes();
        int bytes = c.type().byteSize();
        try (Group group = Group.start()) {
          for (int peer = 0; peer < c.communicator().nranks(); peer++) {
            c.communicator()
                .recv(
                    c.recv().slice(s.recvStarts()[peer] * bytes),
                    s.recvCounts()[peer],
                    c.type(),
                    peer,
                    c.stream());
            c.communicator()
                .send(
                    c.send().slice(s.sendStarts()[peer] * bytes),
                    s.sendCounts()[peer],
                    c.type(),
                    peer,
                    c.stream());
          }
          group.launch();
        }
      }),
  /** See {@link Communicator#barrier}. */
  BARRIER(
      "barrier",
      Content.MOVED,
      Root.NONE,
      Blocks.NONE,
      Counts.ONE,
      c -> c.communicator().barrier(c.stream()));

  private enum Content {
    MOVED,
    REDUCED
  }

  private enum Root {
    NONE,
    SENDS,
    RECEIVES
  }

  private enum Counts {
    ONE,
    EACH
  }

  private final String label;
  private final Content content;
  private final Root part;
  private final Blocks blocks;
  private final Counts counts;
  private final Consumer<RankCall> call;

  Collective(
      String label,
      Content content,
      Root part,
      Blocks blocks,
      Counts counts,
      Consumer<RankCall> call) {
    this.label = label;
    this.content = content;
    this.part = part;
    this.blocks = blocks;
    this.counts = counts;
    this.call = call;
  }

  /** The name of the method, or methods. */
  public String label() {
    return label;
  }

  /** Whether elements are reduced, not only moved. */
  public boolean reduces() {
    return content == Content.REDUCED;
  }

  /** Whether it takes a root. */
  public boolean rooted() {
    return part != Root.NONE;
  }

  /** Whether a rank sends anything. */
  public boolean sends(int rank, int root) {
    return part != Root.SENDS || rank == root;
  }

  /** Whether a rank receives anything. */
  public boolean receives(int rank, int root) {
    return part != Root.RECEIVES || rank == root;
  }

  /** Whether one rank sends another a message, instead of data that goes along rings or trees. */
  public boolean messages(int from, int to, int nranks, int root) {
    return switch (blocks) {
      case EXCHANGED -> true;
      case RING -> to == (from + 1) % nranks;
      case GATHERED, SCATTERED -> rooted() && sends(from, root) && receives(to, root);
      case EVEN, NONE -> false;
    };
  }

  /** How buffers are divided. */
  public Blocks blocks() {
    return blocks;
  }

  /** Whether each block has a size of its own. */
  public boolean varies() {
    return counts == Counts.EACH;
  }

  /** Whether it can be in place. */
  public boolean inPlace() {
    return blocks.inPlace();
  }

  /** What algbw is multiplied with to give busbw, for at least two ranks. */
  public double busFactor(int nranks) {
    return blocks.divided() ? (nranks - 1.0) / nranks : 1;
  }

  /** Queues one rank's part. */
  public void issue(RankCall rank) {
    call.accept(rank);
  }

  /** One rank's part, to be queued again and again. */
  public PreparedCall prepare(RankCall rank) {
    return new Prepared(call, rank);
  }

  // Not a lambda, which is one call more: the compiler inlines 15 levels of calls, and the
  // operation itself needs most of them.
  private record Prepared(Consumer<RankCall> call, RankCall rank) implements PreparedCall {
    @Override
    public void issue(int stage) {
      call.accept(rank);
    }
  }
}

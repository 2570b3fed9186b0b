package io.nccl4j.internal.host.engine;

import io.nccl4j.internal.host.kernel.Copies;
import io.nccl4j.internal.host.layout.Layout;
import io.nccl4j.internal.operation.Operation;
import io.nccl4j.internal.operation.Shape;
import java.util.List;
import java.util.function.Predicate;

/**
 * How the ranks of a machine carry out which operation: the first row that fits counts. A row looks
 * at nothing but what all ranks know. An algorithm for more ranks is a further row before those
 * that it replaces.
 */
final class TuningTable {
  /** Where the limits come from. */
  static final String MACHINE =
      "AMD EPYC (Zen 5), 2 processors, 1 MiB of L2 each, 32 MiB of L3; those of 8 ranks and more:"
          + " Intel Xeon, 32 processors, 2 MiB of L2 each, 300 MiB of L3; JDK 25";

  /** Bytes of each input that a rank folds, straight to the outputs, before it looks up. */
  static final long FOLD_CHUNK = 1 << 20;

  /**
   * The same where it folds to memory of its own that is then copied past the caches: what a cache
   * of the processor holds, and what the JVM copies so, which is 2.5 MiB and more.
   */
  static final long STREAM_CHUNK = 4 << 20;

  /**
   * Reductions stream only where that is forced. Two threads, MAX out of place, least times of 2
   * runs: 2.18 instead of 2.08 ms at 32 MiB, 4.24 instead of 3.96 at 64, 7.95 instead of 8.34 at
   * 128.
   */
  private static final long NEVER = Long.MAX_VALUE;

  private static final int ALL = Layout.MAX_RANKS;

  /**
   * Copies stream from this size of a share or block on. Two threads, blocks of 8 MiB, in parts of
   * the time without: broadcast 0.82, allGather 0.90, allToAll 0.81 with 300 MiB of L3; 0.96, 1.01
   * and 0.85 with 32 MiB. Blocks of 4 MiB: 0.89 to 1.19.
   */
  private static final long STREAMED_COPY = 8 << 20;

  /** Which memory a row is for. */
  enum Placement {
    ANY("any"),
    /** Memory that other processes cannot reach. */
    PRIVATE("wrapped, processes");

    private final String label;

    Placement(String label) {
      this.label = label;
    }

    String label() {
      return label;
    }
  }

  /**
   * A row.
   *
   * @param operations which it is for
   * @param leastRanks from how many ranks on
   * @param mostRanks up to how many
   * @param hosts whether it is also for ranks of several hosts; of messages those that stay on one
   * @param least from how many bytes on: of STREAM of one share or block, else of all that a rank
   *     sends, of reduceScatter, allToAll and scatter the blocks for all ranks
   * @param most up to how many, likewise
   * @param chunk bytes that are moved at once, of each buffer
   * @param shared whether each rank makes a share of the result, where there is one for all
   * @param why in words
   */
  record Row(
      Predicate<Operation> operations,
      int leastRanks,
      int mostRanks,
      boolean hosts,
      Placement placement,
      long least,
      long most,
      Protocol protocol,
      long chunk,
      boolean shared,
      String why) {
    boolean fits(Operation operation, int nranks, boolean overHosts) {
      return operations.test(operation)
          && nranks >= leastRanks
          && nranks <= mostRanks
          && (hosts || !overHosts);
    }

    Algorithm algorithm(Operation operation) {
      return shared && operation.isShared() ? Algorithm.SHARE : Algorithm.FLAT;
    }
  }

  static final List<Row> ROWS =
      List.of(
          inShares(3, 7, NEVER),
          inShares(8, 15, 1024),
          inShares(16, 31, 512),
          inShares(32, ALL, 256),
          new Row(
              operation -> operation.isCollective() && !operation.varies(),
              1,
              ALL,
              false,
              Placement.ANY,
              0,
              Layout.OUTBOX_PAYLOAD,
              Protocol.LL,
              Layout.OUTBOX_PAYLOAD,
              false,
              "one exchange: the data comes with the word that is polled"),
          new Row(
              TuningTable::isMessage,
              1,
              ALL,
              true,
              Placement.ANY,
              0,
              Layout.LANE_PAYLOAD,
              Protocol.LL,
              Layout.LANE_PAYLOAD,
              false,
              "the sender is done at once"),
          new Row(
              TuningTable::isStagedInHalves,
              1,
              ALL,
              true,
              Placement.PRIVATE,
              0,
              Long.MAX_VALUE,
              Protocol.STAGED,
              Layout.STAGING_BYTES / 2,
              true,
              "a rank cannot read the memory itself"),
          new Row(
              TuningTable::isMessage,
              1,
              ALL,
              true,
              Placement.PRIVATE,
              0,
              Long.MAX_VALUE,
              Protocol.STAGED,
              Layout.CHUNK_BYTES,
              true,
              "the receiver cannot read the memory itself"),
          new Row(
              operation -> operation.reducing() && operation.isCollective(),
              1,
              ALL,
              true,
              Placement.ANY,
              NEVER,
              Long.MAX_VALUE,
              Protocol.STREAM,
              STREAM_CHUNK,
              true,
              "gains too little to be chosen"),
          new Row(
              operation -> !operation.reducing() && moves(operation),
              1,
              ALL,
              true,
              Placement.ANY,
              STREAMED_COPY,
              Long.MAX_VALUE,
              Protocol.STREAM,
              Copies.STEP,
              true,
              "no cache holds it: written past them"),
          new Row(
              operation -> operation.reducing() && operation.isCollective(),
              1,
              ALL,
              true,
              Placement.ANY,
              0,
              Long.MAX_VALUE,
              Protocol.DIRECT,
              FOLD_CHUNK,
              true,
              "each byte is read and written once"),
          new Row(
              operation -> !operation.reducing() && moves(operation),
              1,
              ALL,
              true,
              Placement.ANY,
              0,
              Long.MAX_VALUE,
              Protocol.DIRECT,
              Copies.STEP,
              true,
              "each byte is copied once"));

  private TuningTable() {}

  /**
   * Small data of many ranks, from some size on. Flat and in shares, in us, threads with a
   * processor each, out of place: 8 ranks 512 B 1.6 and 2.1, 1 KiB 2.7 and 2.0; 16 ranks 256 B 2.0
   * and 2.2, 512 B 2.7 and 2.3, 1 KiB 4.6 and 2.9; 32 ranks 128 B 2.7 and 2.5, 256 B 3.5 and 2.8, 1
   * KiB 8.4 and 3.5. 4 ranks gained nothing.
   */
  private static Row inShares(int leastRanks, int mostRanks, long least) {
    return new Row(
        operation -> operation == Operation.ALL_REDUCE,
        leastRanks,
        mostRanks,
        false,
        Placement.ANY,
        least,
        Layout.OUTBOX_PAYLOAD,
        Protocol.LL,
        Layout.SHARE_BYTES,
        true,
        "two exchanges instead of reading all that the others have");
  }

  static boolean isMessage(Operation operation) {
    return operation == Operation.SEND || operation == Operation.RECV;
  }

  private static boolean isStagedInHalves(Operation operation) {
    return operation.isCollective() && moves(operation);
  }

  /** Whether there is data, which a barrier has not. */
  static boolean moves(Operation operation) {
    return (operation.isCollective() && operation.sent() != Shape.NOTHING) || isMessage(operation);
  }
}

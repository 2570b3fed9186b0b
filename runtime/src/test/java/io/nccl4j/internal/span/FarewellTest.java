package io.nccl4j.internal.span;

import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static org.junit.jupiter.api.Assertions.assertEquals;

import io.nccl4j.NcclException;
import io.nccl4j.internal.host.engine.Outside;
import io.nccl4j.internal.net.FakeNetwork;
import io.nccl4j.internal.net.Port;
import io.nccl4j.internal.schedule.IdleWork;
import io.nccl4j.internal.schedule.Wording;
import io.nccl4j.internal.schedule.Work;
import io.nccl4j.internal.schedule.WorkFifo;
import io.nccl4j.internal.spi.MemoryBook;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The last that ranks of other hosts hear of a rank. */
@Timeout(60)
class FarewellTest {
  private static final int NEWS = 7;

  /** More than any message of this network takes. */
  private static final int LOOKS = 10_000;

  /** A rank that says one thing, and notes what it hears. */
  private static final class Rank implements Outside.Own {
    private final LinkedBlockingQueue<Integer> heard = new LinkedBlockingQueue<>();

    @Override
    public void failUnlessClosed(NcclException cause) {
      throw cause;
    }

    @Override
    public void hear(int rank, MemorySegment news, long offset) {
      heard.add(news.get(JAVA_INT_UNALIGNED, offset));
    }

    @Override
    public long shownCount(int rank, long call, int of) {
      return -1;
    }

    @Override
    public void say(int rank, MemorySegment news, long offset) {
      news.set(JAVA_INT_UNALIGNED, offset, NEWS);
    }
  }

  /** Ranks, some of them on the same host, that have not talked yet. */
  private static final class Spans {
    private final FakeNetwork network = new FakeNetwork(1, true);
    private final List<Port> ports = new ArrayList<>();
    private final List<Rank> ranks = new ArrayList<>();
    private final List<Span> spans = new ArrayList<>();

    Spans(int... hostOf) {
      Hosts hosts = new Hosts(hostOf, new int[hostOf.length], new int[hostOf.length]);
      for (int rank = 0; rank < hostOf.length; rank++) {
        ports.add(network.newPort());
      }
      List<byte[]> addresses = ports.stream().map(Port::address).toList();
      MemoryBook book = new MemoryBook();
      for (int rank = 0; rank < hostOf.length; rank++) {
        ranks.add(new Rank());
        spans.add(
            new Span(
                hosts, rank, network, ports.get(rank), addresses, TimeUnit.SECONDS.toNanos(1)));
        spans
            .get(rank)
            .begin(
                book.open("comm", 0),
                new Wording("comm", new WorkFifo<>(Work.BYTES, IdleWork::new)),
                ranks.get(rank));
      }
    }

    /** What a rank has heard of another host's rank once it has looked for long enough. */
    List<Integer> heardBy(int rank) {
      Rank listener = ranks.get(rank);
      for (int i = 0; i < LOOKS && listener.heard.isEmpty(); i++) {
        spans.get(rank).look();
      }
      return List.copyOf(listener.heard);
    }
  }

  /** Its failure is seen, and its work dropped, before anybody has told the others. */
  @Test
  void whoGivesUpSaysWhyBeforeItLeaves() {
    Spans two = new Spans(0, 1);
    two.spans.get(1).abandon();
    assertEquals(List.of(NEWS), two.heardBy(0));
    two.spans.get(0).close();
  }

  /** Rank 1 is no leader, and what it has sent is not read any more. */
  @Test
  void whoHasAConnectionHearsWhyItEnds() {
    Spans three = new Spans(0, 0, 1);
    MemorySegment news = Arena.ofAuto().allocate(Outside.NEWS_BYTES);
    three.ports.get(1).post(2, (long) Wire.NEWS << Port.KIND_SHIFT | 1, news, 0, news.byteSize());
    three.spans.get(2).abandon();
    assertEquals(List.of(NEWS), three.heardBy(1));
    assertEquals(List.of(NEWS), three.heardBy(0));
    three.spans.get(0).close();
    three.spans.get(1).close();
  }
}

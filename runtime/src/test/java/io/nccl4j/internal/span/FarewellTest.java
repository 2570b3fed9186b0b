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
import java.lang.foreign.MemorySegment;
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

  /** Its failure is seen, and its work dropped, before anybody has told the others. */
  @Test
  void whoGivesUpSaysWhyBeforeItLeaves() throws Exception {
    FakeNetwork network = new FakeNetwork(1, true);
    Hosts hosts = new Hosts(new int[] {0, 1});
    List<Port> ports = List.of(network.newPort(), network.newPort());
    List<byte[]> addresses = ports.stream().map(Port::address).toList();
    MemoryBook book = new MemoryBook();
    Rank[] ranks = {new Rank(), new Rank()};
    Span[] spans = new Span[2];
    for (int rank = 0; rank < 2; rank++) {
      spans[rank] =
          new Span(hosts, rank, network, ports.get(rank), addresses, TimeUnit.SECONDS.toNanos(1));
      spans[rank].begin(
          book.open("comm", 0),
          new Wording("comm", new WorkFifo<>(Work.BYTES, IdleWork::new)),
          ranks[rank]);
    }
    spans[1].abandon();
    for (int i = 0; i < LOOKS && ranks[0].heard.isEmpty(); i++) {
      spans[0].look();
    }
    assertEquals(List.of(NEWS), List.copyOf(ranks[0].heard));
    spans[0].close();
  }
}

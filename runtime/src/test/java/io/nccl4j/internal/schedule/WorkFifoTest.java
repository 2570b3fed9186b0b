package io.nccl4j.internal.schedule;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Tier;
import io.nccl4j.property.Property;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The FIFO against a list of works in the order they were taken. */
class WorkFifoTest {
  private static final int SLOTS = 8;

  private static WorkFifo<IdleWork> fifo() {
    return new WorkFifo<>((long) SLOTS * Work.BYTES, IdleWork::new);
  }

  /**
   * Takes, and completes or discards in any order: 0…3 take, 4…5 complete one of those in use, 6…7
   * discard the newest.
   */
  @Test
  void anyHistory() {
    Property.holds(
        500,
        draw -> {
          int[] actions = draw.list("actions", 200, 0, 7);
          int choice = draw.integer("choices", 0, 1000);
          WorkFifo<IdleWork> fifo = fifo();
          // Only where groups are discarded may places at the new end be free.
          fifo.discard(fifo.take());
          // Slots in ring order, oldest first; null where the work is complete.
          Deque<IdleWork> ring = new ArrayDeque<>();
          List<IdleWork> inUse = new ArrayList<>();
          int most = 1;
          for (int action : actions) {
            while (!ring.isEmpty() && !inUse.contains(ring.peekFirst())) {
              ring.removeFirst();
            }
            if (ring.size() == SLOTS) {
              while (!inUse.contains(ring.peekLast())) {
                ring.removeLast();
              }
            }
            assertEquals(ring.size() < SLOTS, fifo.hasRoom());
            if (action < 4 && fifo.hasRoom()) {
              IdleWork last = fifo.take();
              assertTrue(last.isInUse());
              assertFalse(inUse.contains(last), "a work in use was handed out again");
              ring.addLast(last);
              most = Math.max(most, ring.size());
              inUse.add(last);
            } else if (action < 4) {
              assertSame(ring.peekFirst(), fifo.oldest());
            } else if (!inUse.isEmpty()) {
              IdleWork done;
              if (action < 6) {
                done = inUse.remove(Math.floorMod(choice += 31, inUse.size()));
                done.free();
              } else {
                done = inUse.removeLast();
                fifo.discard(done);
              }
              assertFalse(done.isInUse());
            }
            assertEquals(spread(ring, inUse) * Work.BYTES, fifo.takenBytes());
            assertEquals(inUse.size(), used(fifo));
            assertEquals(inUse.size(), fifo.inUse());
            IdleWork oldest = ring.stream().filter(inUse::contains).findFirst().orElse(null);
            assertSame(oldest, fifo.oldestInUse());
            for (IdleWork item : inUse) {
              assertSame(item, fifo.oldestInUse(work -> work == item));
            }
            assertEquals((long) most * Work.BYTES, fifo.highWaterBytes());
          }
        });
  }

  /** From the oldest of those in use to the newest. */
  private static long spread(Deque<IdleWork> ring, List<IdleWork> inUse) {
    List<IdleWork> places = List.copyOf(ring);
    List<Integer> used =
        IntStream.range(0, places.size())
            .filter(i -> inUse.contains(places.get(i)))
            .boxed()
            .toList();
    return used.isEmpty() ? 0 : used.getLast() - used.getFirst() + 1;
  }

  /** What was discarded makes room although an older work runs on. */
  @Test
  void discardingBehindARunningWorkMakesRoom() {
    WorkFifo<IdleWork> fifo = fifo();
    IdleWork running = fifo.take();
    for (int i = 0; i < 10 * SLOTS; i++) {
      assertTrue(fifo.hasRoom(), "after " + i + " discarded works");
      fifo.discard(fifo.take());
    }
    assertTrue(running.isInUse());
    assertEquals(Work.BYTES, fifo.takenBytes());
  }

  private static int used(WorkFifo<IdleWork> fifo) {
    int used = 0;
    for (int i = 0; i < fifo.capacity(); i++) {
      used += fifo.at(i).isInUse() ? 1 : 0;
    }
    return used;
  }

  @Test
  void holdsAsManyWorksAsItsBytesSay() {
    WorkFifo<IdleWork> fifo = fifo();
    Set<IdleWork> works = new HashSet<>();
    for (int i = 0; i < SLOTS; i++) {
      assertTrue(fifo.hasRoom());
      works.add(fifo.take());
    }
    assertFalse(fifo.hasRoom());
    assertEquals(SLOTS, works.size());
    assertEquals(SLOTS, fifo.capacity());
    assertEquals(SLOTS / 2, fifo.planLimit());
  }

  /** A work for as long as it is not complete; compared by identity, since works come again. */
  private static final class Held {
    final IdleWork work;

    Held(IdleWork work) {
      this.work = work;
    }
  }

  /** Another thread always finds a work that is in use all the time, whatever else goes on. */
  @Test
  @Timeout(60)
  void findsWhatStaysInUse() throws Exception {
    int rounds = 2_000_000;
    WorkFifo<IdleWork> fifo = fifo();
    AtomicReference<Held> held = new AtomicReference<>();
    AtomicBoolean done = new AtomicBoolean();
    BlockingQueue<Throwable> failures = new ArrayBlockingQueue<>(1);
    Thread submitter =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    for (int round = 0; round < rounds; round++) {
                      // Works before it: the FIFO's old end comes nearer when they complete.
                      List<IdleWork> before = new ArrayList<>();
                      for (int i = round % (SLOTS - 1); i > 0; i--) {
                        before.add(fifo.take());
                      }
                      IdleWork work = fifo.take();
                      held.set(new Held(work));
                      before.forEach(IdleWork::free);
                      fifo.take().free();
                      held.set(null);
                      work.free();
                    }
                  } catch (Throwable e) {
                    failures.add(e);
                  } finally {
                    done.set(true);
                  }
                });
    int found = 0;
    while (!done.get()) {
      Held one = held.get();
      if (one != null) {
        IdleWork answer = fifo.oldestInUse(item -> item == one.work);
        if (held.get() == one) {
          assertSame(one.work, answer);
          found++;
        }
      }
    }
    submitter.join();
    assertTrue(failures.isEmpty(), failures::toString);
    assertTrue(found > 0, "nothing was ever looked for");
  }

  /**
   * What the submitter wrote is what the completer reads, and a slot comes back only when it is
   * done with it.
   */
  @Test
  @Timeout(60)
  void handsOverBetweenTwoThreads() throws Exception {
    int works = Tier.choose(20_000, 200_000);
    WorkFifo<IdleWork> fifo = fifo();
    BlockingQueue<Throwable> failures = new ArrayBlockingQueue<>(1);
    IdleWork[] published = new IdleWork[SLOTS];
    // An empty FIFO starts at its first place again: some places are used late.
    for (int i = 0; i < SLOTS; i++) {
      fifo.at(i).count = -1;
    }
    long[] tail = new long[32];
    var tailHandle = java.lang.invoke.MethodHandles.arrayElementVarHandle(long[].class);
    Thread completer =
        Thread.ofPlatform()
            .start(
                () -> {
                  try {
                    for (long head = 0; head < works; head++) {
                      while ((long) tailHandle.getAcquire(tail, 16) == head) {
                        Thread.yield();
                      }
                      IdleWork work = published[(int) head % SLOTS];
                      assertEquals(head, work.count);
                      work.count = -1;
                      work.free();
                    }
                  } catch (Throwable e) {
                    failures.add(e);
                  }
                });
    for (long i = 0; i < works && failures.isEmpty(); i++) {
      while (!fifo.hasRoom() && failures.isEmpty()) {
        Thread.yield();
      }
      IdleWork work = fifo.take();
      assertTrue(work.count == -1, "the slot was taken before it was given back");
      work.count = i;
      published[(int) i % SLOTS] = work;
      tailHandle.setRelease(tail, 16, i + 1);
    }
    completer.join();
    assertTrue(failures.isEmpty(), failures::toString);
  }
}

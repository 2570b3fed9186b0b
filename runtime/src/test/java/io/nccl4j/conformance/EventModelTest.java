package io.nccl4j.conformance;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.Timeout.ThreadMode;

/**
 * Streams that are held up and let go, events that are recorded again and again, and who waits for
 * which record: random histories against a model that knows what must be complete and what must
 * not.
 */
@Timeout(value = 120, threadMode = ThreadMode.SEPARATE_THREAD)
class EventModelTest {
  private static final int STREAMS = 3;
  private static final int EVENTS = 3;
  private static final int HISTORIES = 25;
  private static final int ACTIONS = 60;

  /** What was put into a stream. */
  private static final class Entry {
    final Lane lane;
    final int index;

    /** The record that it waits for; null if it is no wait for one. */
    final Entry awaited;

    /** Whether it holds the stream up. */
    boolean holds;

    Entry(Lane lane, Entry awaited, boolean holds) {
      this.lane = lane;
      this.index = lane.entries.size();
      this.awaited = awaited;
      this.holds = holds;
      lane.entries.add(this);
    }

    boolean isComplete() {
      for (; lane.done <= index; lane.done++) {
        Entry next = lane.entries.get(lane.done);
        if (next.holds || next.awaited != null && !next.awaited.isComplete()) {
          return false;
        }
      }
      return true;
    }
  }

  /** A stream, and a communicator whose barriers hold it up. */
  private static final class Lane implements AutoCloseable {
    final Ranks ranks = new Ranks(2);
    final Stream stream = ranks.streams.getFirst();
    final List<Entry> entries = new ArrayList<>();
    final List<Entry> holds = new ArrayList<>();
    int done;

    void hold() {
      ranks.get(0).barrier(stream);
      holds.add(new Entry(this, null, true));
    }

    void letGo() {
      ranks.get(1).barrier(ranks.streams.get(1));
      holds.removeFirst().holds = false;
    }

    @Override
    public void close() {
      while (!holds.isEmpty()) {
        letGo();
      }
      ranks.synchronize();
      ranks.close();
    }
  }

  private record Promise(Entry record, CompletableFuture<Void> future) {}

  private final List<Lane> lanes = new ArrayList<>();
  private final List<Event> events = new ArrayList<>();
  private final Entry[] lastRecord = new Entry[EVENTS];
  private final List<Promise> promises = new ArrayList<>();

  private void act(Random random) {
    Lane lane = lanes.get(random.nextInt(STREAMS));
    int e = random.nextInt(EVENTS);
    switch (random.nextInt(8)) {
      case 0 -> {
        if (lane.holds.size() < 3) {
          lane.hold();
        }
      }
      case 1 -> {
        if (!lane.holds.isEmpty()) {
          lane.letGo();
        }
      }
      case 2, 3, 4 -> {
        lane.stream.record(events.get(e));
        lastRecord[e] = new Entry(lane, null, false);
      }
      case 5, 6 -> {
        lane.stream.waitFor(events.get(e));
        if (lastRecord[e] != null) {
          Entry ignored = new Entry(lane, lastRecord[e], false);
        }
      }
      default -> {
        if (lastRecord[e] != null) {
          promises.add(new Promise(lastRecord[e], events.get(e).toFuture()));
        }
      }
    }
  }

  private void check(String when) {
    for (int e = 0; e < EVENTS; e++) {
      Event event = events.get(e);
      if (lastRecord[e] != null && !lastRecord[e].isComplete()) {
        assertFalse(event.isComplete(), when + ": event " + e + " is complete too early");
      } else {
        assertTrue(
            TestBackend.eventually(event::isComplete), when + ": event " + e + " is not complete");
      }
    }
    for (Promise promise : promises) {
      if (!promise.record.isComplete()) {
        assertFalse(promise.future.isDone(), when + ": a future is complete too early");
      } else {
        assertTrue(
            TestBackend.eventually(promise.future::isDone), when + ": a future is not complete");
      }
    }
    for (int i = 0; i < STREAMS; i++) {
      Lane lane = lanes.get(i);
      if (!lane.entries.isEmpty() && !lane.entries.getLast().isComplete()) {
        assertFalse(lane.stream.query(), when + ": stream " + i + " went on too early");
      } else {
        assertTrue(
            TestBackend.eventually(lane.stream::query), when + ": stream " + i + " does not go on");
      }
    }
  }

  @Test
  void recordsOfManyStreams() {
    Device device = TestBackend.device(0);
    for (int i = 0; i < STREAMS; i++) {
      lanes.add(new Lane());
    }
    for (int history = 0; history < HISTORIES; history++) {
      long seed = TestBackend.SEED + history;
      Random random = new Random(seed);
      for (int e = 0; e < EVENTS; e++) {
        events.add(device.newEvent());
        lastRecord[e] = null;
      }
      for (int action = 0; action < ACTIONS; action++) {
        act(random);
        check("seed " + seed + ", action " + action);
      }
      for (Lane lane : lanes) {
        while (!lane.holds.isEmpty()) {
          lane.letGo();
        }
      }
      check("seed " + seed + ", all streams let go");
      for (Lane lane : lanes) {
        lane.ranks.synchronize();
      }
      promises.clear();
      events.forEach(Event::close);
      events.clear();
    }
    lanes.forEach(Lane::close);
  }

  /** The first record is held up, the second one is complete: each is what it is. */
  @Test
  void anEarlierRecordThatEndsLaterTakesNothingBack() {
    try (Lane held = new Lane();
        Stream free = TestBackend.device(0).newStream();
        Stream first = TestBackend.device(0).newStream();
        Stream last = TestBackend.device(0).newStream();
        DeviceBuffer buffer = TestBackend.device(0).allocate(1);
        Event event = TestBackend.device(0).newEvent()) {
      buffer.copyFrom(new byte[1]);
      held.hold();
      held.stream.record(event);
      first.waitFor(event);
      first.fill(buffer, (byte) 1);
      CompletableFuture<Void> future = event.toFuture();
      free.record(event);
      event.synchronize();
      assertTrue(event.isComplete());
      assertFalse(first.query(), "it waits for the first record");
      assertFalse(future.isDone(), "it was asked for at the first record");
      assertEquals(0, buffer.toBytes()[0]);
      held.letGo();
      first.synchronize();
      future.join();
      held.stream.synchronize();
      assertEquals(1, buffer.toBytes()[0]);
      assertTrue(event.isComplete(), "the last record was complete before");
      last.waitFor(event);
      last.synchronize(Duration.ofSeconds(5));
    }
  }
}

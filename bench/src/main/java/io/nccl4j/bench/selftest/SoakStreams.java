package io.nccl4j.bench.selftest;

import io.nccl4j.Device;
import io.nccl4j.Event;
import io.nccl4j.InternalErrorException;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.locks.LockSupport;
import org.jspecify.annotations.Nullable;

/**
 * The streams of one rank in one episode of the soak, made when they are used first, and all ways
 * to wait for them. The rank's thread uses it.
 */
final class SoakStreams {
  private static final Duration PATIENCE = Duration.ofMinutes(3);
  private static final long LOOK_NANOS = 20_000;

  private final Device device;
  private final Random random;
  private final @Nullable Stream[] streams = new Stream[SoakEpisode.STREAMS];

  /** Without streams. */
  SoakStreams(Device device, Random random) {
    this.device = device;
    this.random = random;
  }

  Stream get(int index) {
    Stream stream = streams[index];
    if (stream == null) {
      stream = device.newStream();
      streams[index] = stream;
    }
    return stream;
  }

  Stream any() {
    return get(random.nextInt(SoakEpisode.STREAMS));
  }

  List<Stream> used() {
    List<Stream> used = new ArrayList<>();
    for (Stream stream : streams) {
      if (stream != null) {
        used.add(stream);
      }
    }
    return used;
  }

  /** Makes a stream wait for what another one has. */
  void after(Stream first, Stream next) {
    try (Event event = device.newEvent()) {
      first.record(event);
      next.waitFor(event);
    }
  }

  /** Waits for all that a stream has, in one of the ways there are. */
  void await(Stream stream) throws InterruptedException {
    switch (random.nextInt(4)) {
      case 0 -> stream.synchronize();
      case 1 -> stream.synchronize(PATIENCE);
      case 2 -> {
        long end = System.nanoTime() + PATIENCE.toNanos();
        while (!stream.query()) {
          if (System.nanoTime() - end > 0) {
            throw new InternalErrorException("query() has been false for " + PATIENCE, "");
          }
          // Virtual threads that only yield keep others, which were parked, from their carriers.
          LockSupport.parkNanos(LOOK_NANOS);
        }
      }
      default -> {
        try (Event event = device.newEvent()) {
          stream.record(event);
          event.toFuture().get(PATIENCE.toSeconds(), TimeUnit.SECONDS);
        } catch (ExecutionException e) {
          if (e.getCause() instanceof NcclException cause) {
            throw cause;
          }
          throw new IllegalStateException(e);
        } catch (TimeoutException e) {
          throw new InternalErrorException("a future has not completed in " + PATIENCE, "");
        }
      }
    }
  }
}

package io.nccl4j.bench.selftest;

import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.Device;
import io.nccl4j.NcclException;
import io.nccl4j.Stream;
import io.nccl4j.bench.data.Mix;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.IntStream;

/**
 * One rank in one episode of the soak: takes the steps, as the fault lets it, and closes what is
 * left. Its thread uses it.
 */
final class SoakRank {
  private final SoakEpisode episode;
  private final int rank;
  private final SoakProcess process;
  private final Random own;
  private final SoakOutcome outcome;
  private final SoakFamilies families;
  private final SoakStreams streams;
  private final SoakMemory memory;
  private final SoakOperations operations;

  SoakRank(SoakEpisode episode, int rank, SoakProcess process) {
    this.episode = episode;
    this.rank = rank;
    this.process = process;
    // Another run with the same seed does the same, as far as its threads do.
    this.own = new Random(Mix.of(process.settings().seed(), episode.number(), rank));
    Device device = SelfTest.device(Backend.HOST, rank);
    outcome = new SoakOutcome(episode, rank);
    families = new SoakFamilies(rank, process, outcome);
    streams = new SoakStreams(device, own);
    memory = new SoakMemory(process, device, own, streams, outcome);
    operations = new SoakOperations(rank, process, own, families, streams, memory, outcome);
  }

  /** Joins, does all steps, and closes everything. */
  SoakOutcome run(Supplier<Communicator> joining) {
    List<Integer> world = IntStream.range(0, episode.nranks()).boxed().toList();
    try {
      families.add(new SoakFamilies.Member(process.hook(joining.get()), world));
      process.joined(episode);
      steps();
    } catch (NcclException e) {
      // While joining, and from what waits for nobody.
      outcome.failed(e, world);
    } catch (RuntimeException | Error e) {
      outcome.problem(e.toString(), e);
    } catch (InterruptedException e) {
      outcome.problem("interrupted", e);
    }
    close();
    return outcome;
  }

  private void steps() throws InterruptedException {
    SoakFault fault = episode.fault();
    boolean mine = fault.ranks().contains(rank);
    Thread aborter = mine && fault.kind() == SoakFault.Kind.ABORT ? abortLater(fault) : null;
    try {
      for (int i = 0; i < episode.steps().size(); i++) {
        if (mine && i == fault.step() && fault.kind() == SoakFault.Kind.LEAVE) {
          return;
        }
        if (mine && fault.kind() == SoakFault.Kind.SLOW && own.nextBoolean()) {
          Thread.sleep(own.nextLong(fault.lasts().toMillis() + 1));
        }
        outcome.at("step " + i);
        switch (episode.steps().get(i)) {
          case SoakEpisode.Operate operate -> operations.run(operate);
          case SoakEpisode.Split split -> families.split(split);
          case SoakEpisode.Close close -> families.close(close.family());
        }
        if (outcome.hasFailed()) {
          return;
        }
        memory.tidy();
      }
    } finally {
      if (aborter != null) {
        aborter.interrupt();
        aborter.join();
      }
    }
  }

  private Thread abortLater(SoakFault fault) {
    long nanos = (long) (Math.abs(fault.when()) * process.episodeNanos());
    return Thread.ofPlatform()
        .daemon()
        .name("soak-abort")
        .start(
            () -> {
              try {
                TimeUnit.NANOSECONDS.sleep(nanos);
              } catch (InterruptedException e) {
                // The episode is over.
                return;
              }
              families.open().forEach(member -> member.communicator().abort());
            });
  }

  /** Closes everything that is open, in any order. */
  private void close() {
    outcome.at("closing");
    List<Runnable> rest = memory.close();
    for (Stream stream : streams.used()) {
      rest.add(() -> outcome.close("stream", stream));
    }
    for (SoakFamilies.Member member : families.open()) {
      rest.add(() -> outcome.close("communicator", member.communicator()));
    }
    Collections.shuffle(rest, own);
    rest.forEach(Runnable::run);
  }
}

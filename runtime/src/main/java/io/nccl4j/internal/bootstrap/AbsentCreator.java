package io.nccl4j.internal.bootstrap;

import io.nccl4j.BackendUnavailableException;
import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.PeerFailedException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Libc;
import io.nccl4j.internal.machine.ProcessFiles;
import java.util.List;

/**
 * Why the process that created a unique id cannot be reached, or does not serve a rank, in words.
 */
final class AbsentCreator {
  private AbsentCreator() {}

  /** Refuses an id whose creator this process cannot reach. */
  static void requireReachable(RendezvousId id) {
    Place here = Place.HERE;
    Place creator = id.place();
    if (!here.sameMachine(creator)) {
      throw new SystemErrorException(
          "the unique id was created on machine '"
              + creator.host()
              + "' (boot id "
              + creator.boot()
              + "), this is machine '"
              + here.host()
              + "' (boot id "
              + here.boot()
              + ")",
          id.orOld("the host backend joins ranks of one machine; the cuda backend joins machines"));
    }
    if (!here.sameNetwork(creator)) {
      throw new SystemErrorException(
          "the unique id was created in container '"
              + creator.host()
              + "', this is '"
              + here.host()
              + "' in another network namespace",
          id.orOld(
              "run all ranks in one container, or in containers that share the network namespace"));
    }
    if (!id.served()) {
      throw new BackendUnavailableException(
          "process "
              + creator.pid()
              + " that created the unique id has no access to the C library,"
              + " so only its own threads can join",
          "start it with " + Libc.nativeAccessOption() + ", on Linux");
    }
    if (!Libc.isAvailable()) {
      throw new BackendUnavailableException(
          "ranks in several processes need the C library: " + Libc.unavailableReason(), "");
    }
  }

  /** Nothing listens at the id's socket. */
  static NcclException nobodyServes(RendezvousId id) {
    Place creator = id.place();
    if (!Place.HERE.samePids(creator)) {
      return new SystemErrorException(
          "nobody serves the unique id: its creator, process "
              + creator.pid()
              + " of container '"
              + creator.host()
              + "', is gone, or the id was used before",
          id.orOld("keep the creator alive until all ranks have joined, and use an id once"));
    }
    if (lives(creator)) {
      return new InvalidUsageException(
          "process "
              + creator.pid()
              + " no longer serves the unique id: it was used before, its rendezvous failed, or no"
              + " rank used it in time",
          id.orOld("create a new one for each communicator"));
    }
    return new PeerFailedException(
        List.of(),
        "process " + creator.pid() + " that created the unique id is gone",
        id.orOld("keep it alive until all ranks have joined"));
  }

  /** The failure where the creator closed the connection before all ranks had joined. */
  static NcclException gone(RendezvousId id) {
    Place creator = id.place();
    boolean alive = Place.HERE.samePids(creator) && lives(creator);
    return new PeerFailedException(
        List.of(),
        "process "
            + creator.pid()
            + ", which created the unique id, "
            + (alive ? "closed the connection" : "died")
            + " before all ranks joined",
        alive ? "look for the cause there, for example its limit of open files" : "");
  }

  private static boolean lives(Place creator) {
    long started = ProcessFiles.HERE.startOf(creator.pid());
    return started != 0 && started == creator.started();
  }

  /** The failure where the creator does not answer in time. */
  static NcclException late(int rank, Deadline deadline, RendezvousId id) {
    return new DeadlineException(
        "rank "
            + rank
            + " waited "
            + deadline
            + " for process "
            + id.place().pid()
            + ", which created the unique id and does not answer",
        "is it stopped or overloaded?");
  }
}

package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;
import io.nccl4j.internal.observe.Recorder;
import io.nccl4j.internal.observe.Recorder.JoinEvent;
import java.util.List;
import java.util.function.Supplier;
import org.jspecify.annotations.Nullable;

/** How communicators come to the program, whatever their backend: observers hear of it here. */
public final class Creation {
  private Creation() {}

  /**
   * Creates the ranks of one communicator that belong to this process.
   *
   * @param how the method's name
   */
  public static <C extends Communicator> List<C> all(String how, Supplier<List<C>> create) {
    JoinEvent event = Recorder.HERE.join(how);
    List<C> created;
    try {
      created = create.get();
    } catch (RuntimeException | Error e) {
      event.failed(e);
      throw e;
    }
    if (!created.isEmpty()) {
      C first = created.getFirst();
      event.joined(
          first.name(),
          first.device().backend().label(),
          created.stream().map(Communicator::rank).toList(),
          first.nranks());
      created.forEach(communicator -> ((ScheduledCommunicator<?>) communicator).joined());
    }
    return created;
  }

  /** Creates one rank; null if the call makes none. */
  public static <C extends Communicator> @Nullable C one(String how, Supplier<@Nullable C> create) {
    List<C> created =
        all(
            how,
            () -> {
              C made = create.get();
              return made == null ? List.of() : List.of(made);
            });
    return created.isEmpty() ? null : created.getFirst();
  }
}

package io.nccl4j;

import java.io.IOException;
import java.nio.file.attribute.UserPrincipal;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceLoader;

/**
 * The runtime behind the static factories of this package, found once by {@link ServiceLoader}.
 * Programs use the factories; runtimes implement this interface.
 */
@Unstable
public interface Provider {
  /**
   * The runtime.
   *
   * @throws BackendUnavailableException if no runtime is on the class or module path
   */
  static Provider get() {
    return ProviderHolder.get();
  }

  /**
   * The runtime as one of the interfaces that the subpackages have for it.
   *
   * @throws BackendUnavailableException if no runtime is on the class or module path, or it has
   *     nothing of that kind
   */
  static <T> T get(Class<T> type) {
    Provider found = get();
    if (type.isInstance(found)) {
      return type.cast(found);
    }
    throw new BackendUnavailableException(
        "the nccl4j runtime " + found.version() + " is no " + type.getSimpleName(),
        "use the nccl4j-runtime that this API came with");
  }

  /** See {@link Device#get(Backend, int)}. */
  Device device(Backend backend, int ordinal);

  /** See {@link Device#all(Backend)}. */
  List<Device> devices(Backend backend);

  /** See {@link UniqueId#create(Backend, UniqueId.Reach)}: {@value UniqueId#BYTES} bytes. */
  byte[] createUniqueId(Backend backend, UniqueId.Reach reach);

  /** A mark that identifies this process among all present and past ones, for {@link #isGone}. */
  String processMark();

  /** Whether the process with this mark has certainly ended. */
  boolean isGone(String mark);

  /** The user who runs this process; empty if the system does not tell. */
  Optional<UserPrincipal> user() throws IOException;

  /** See {@link Launch#detect(Map)}. */
  Optional<Launch> launch(Map<String, String> environment);

  /** See {@link Group#start()}. */
  Group startGroup();

  /** Refuses a number of ranks that a backend cannot have in one process. */
  void checkRanks(Backend backend, int nranks);

  /** See {@link Communicator#initAll(List, CommunicatorConfig)}. */
  List<Communicator> initAll(List<Device> devices, CommunicatorConfig config);

  /**
   * See {@link Communicators#run}: puts the calling thread onto the processor that serves the
   * device best. Its set of allowed processors does not change, so threads it starts inherit no
   * binding.
   */
  void placeThread(Device device);

  /**
   * See {@link Communicators#run}: whether the rank's task has ended, so that it issues no more
   * operations.
   */
  void setTaskEnded(Communicator rank, boolean ended);

  /** See {@link Communicator#initRank(Device, int, UniqueId, int, CommunicatorConfig)}. */
  Communicator initRank(
      Device device, int nranks, UniqueId id, int rank, CommunicatorConfig config);

  /** See {@link Communicator#initRank(Device, int, List, int, CommunicatorConfig)}. */
  Communicator initRank(
      Device device, int nranks, List<UniqueId> ids, int rank, CommunicatorConfig config);

  /** See {@link Floats}; the arguments have been checked. */
  void narrow(DataType type, float[] from, int fromIndex, short[] to, int toIndex, int count);

  /** See {@link Floats}; the arguments have been checked. */
  void narrow(DataType type, float[] from, int fromIndex, byte[] to, int toIndex, int count);

  /** See {@link Floats}; the arguments have been checked. */
  void widen(DataType type, short[] from, int fromIndex, float[] to, int toIndex, int count);

  /** See {@link Floats}; the arguments have been checked. */
  void widen(DataType type, byte[] from, int fromIndex, float[] to, int toIndex, int count);

  /** See {@link Backend#info()}. */
  BackendInfo info(Backend backend);

  /** See {@link Backend#tuning}. */
  List<BackendInfo.TuningInfo> tuning(Backend backend, int nranks, CommunicatorConfig config);

  /** The runtime's version, for example {@code 0.1.0}. */
  String version();
}

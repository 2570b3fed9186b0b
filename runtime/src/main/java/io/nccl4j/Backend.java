package io.nccl4j;

import io.nccl4j.BackendInfo.TuningInfo;
import java.util.List;
import java.util.Locale;

/** Where ranks run and how they communicate. */
public enum Backend {
  /** {@link #CUDA} where a GPU, its driver and NCCL are usable, otherwise {@link #HOST}. */
  AUTO,
  /**
   * The embedded engine: ranks are threads or processes of one machine that share memory; nothing
   * to install.
   */
  HOST,
  /** GPUs through NCCL and the CUDA driver. */
  CUDA;

  /**
   * The name used in settings and on the command line: {@code auto}, {@code host} or {@code cuda}.
   */
  public String label() {
    return name().toLowerCase(Locale.ROOT);
  }

  /**
   * What this backend found on this machine: libraries, devices, features, and why it cannot be
   * used, if so. Never throws because something is missing. {@link #HOST} loads no library of
   * {@link #CUDA}; {@link #AUTO} stands for the backend it chooses.
   */
  public BackendInfo info() {
    return Provider.get().info(this);
  }

  /**
   * How a communicator of this backend with such a configuration, on one machine, carries out each
   * operation. Empty for {@link #CUDA}, where NCCL chooses.
   *
   * @param nranks of the communicator
   * @throws InvalidArgumentException if the configuration forces what the backend does not have, or
   *     it has no communicators of as many ranks
   */
  public List<TuningInfo> tuning(int nranks, CommunicatorConfig config) {
    return Provider.get().tuning(this, nranks, Require.present(config, "config"));
  }

  /**
   * The backend with the given name.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static Backend ofLabel(String label) {
    for (Backend backend : values()) {
      if (backend.label().equals(label)) {
        return backend;
      }
    }
    throw new InvalidArgumentException("unknown backend '" + label + "'", "use auto, host or cuda");
  }
}

package io.nccl4j;

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

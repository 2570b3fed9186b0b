package io.nccl4j;

/** What happens if memory would exceed its budget. */
public enum MemoryPolicy {
  /**
   * NCCL is told to take less, which one log line reports: no NVLS, fewer CTAs. If that is not
   * enough, the communicator is refused; without a budget, if only free memory is too little, the
   * log says so.
   */
  AUTO,
  /** The communicator is refused. */
  STRICT,
  /** Nothing is checked. */
  OFF;

  /** The name in the environment, for example {@code auto}. */
  public String label() {
    return name().toLowerCase(java.util.Locale.ROOT);
  }

  /**
   * The policy with this name.
   *
   * @throws InvalidArgumentException if there is none
   */
  public static MemoryPolicy ofLabel(String label) {
    for (MemoryPolicy policy : values()) {
      if (policy.label().equals(label)) {
        return policy;
      }
    }
    throw new InvalidArgumentException(
        "the memory policy is '" + label + "'", "use auto, strict or off");
  }
}

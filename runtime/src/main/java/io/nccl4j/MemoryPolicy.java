package io.nccl4j;

/** What happens where memory would exceed its budget. */
public enum MemoryPolicy {
  /**
   * NCCL is told to take less, said in one line of the log: no NVLS, fewer CTAs. Where that is not
   * enough, the communicator is refused, or if there is no budget, but too little free memory, the
   * log says so.
   */
  AUTO,
  /** The communicator is refused. */
  STRICT,
  /** Nothing is looked at. */
  OFF;

  /** The name in the environment, for example {@code auto}. */
  public String label() {
    return name().toLowerCase(java.util.Locale.ROOT);
  }

  /**
   * The policy of this name.
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

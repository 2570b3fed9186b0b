package io.nccl4j;

/**
 * Which tests run: those of every build, or the long ones too. A test tagged {@code long} runs in
 * the long tier only; one that asks here runs in both, and does more in the long one.
 */
public final class Tier {
  private static final boolean IS_LONG = Boolean.getBoolean("nccl4j.test.long");

  private Tier() {}

  /** The first one in every build, such as a few cases, the second one in the long tier. */
  public static <T> T choose(T everyBuild, T longTier) {
    return IS_LONG ? longTier : everyBuild;
  }
}

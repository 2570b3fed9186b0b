package io.nccl4j;

/**
 * Which tests run: those of every build, or the long ones too. A test tagged {@code long} runs in
 * the long tier only; one that asks here runs in both, and does more in the long one.
 */
public final class Tier {
  private static final boolean IS_LONG = Boolean.getBoolean("nccl4j.test.long");

  private Tier() {}

  /** How often to do something: in every build, or in the long tier. */
  public static int times(int everyBuild, int longTier) {
    return IS_LONG ? longTier : everyBuild;
  }
}

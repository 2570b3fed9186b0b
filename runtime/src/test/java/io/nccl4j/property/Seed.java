package io.nccl4j.property;

/** The seed of random cases: the system property nccl4j.test.seed, a number or "random". */
public final class Seed {
  public static final long VALUE = parse(System.getProperty("nccl4j.test.seed", "20260301"));

  private Seed() {}

  private static long parse(String text) {
    return text.equals("random") ? System.nanoTime() : Long.parseLong(text);
  }
}

package io.nccl4j.internal.schedule;

/**
 * Keeps what a rank writes at every operation off the cache lines of other objects: a garbage
 * collector likes to put the same kind of object of two ranks side by side, and the ranks'
 * processors would take the line from each other.
 *
 * <p>128 bytes before the fields of a subclass, two lines, because processors fetch lines in pairs.
 * What lies behind an object is the padding of the next one, or does not change.
 */
@SuppressWarnings("unused") // they only take room
public abstract class Padded {
  /**
   * Elements to add to a small array of longs that is written at every operation, for the same
   * reason.
   */
  public static final int LONGS = 16;

  /** Elements to add to a small array of references or ints. */
  public static final int REFERENCES = 32;

  private long p00;
  private long p01;
  private long p02;
  private long p03;
  private long p04;
  private long p05;
  private long p06;
  private long p07;
  private long p08;
  private long p09;
  private long p10;
  private long p11;
  private long p12;
  private long p13;
  private long p14;
  private long p15;

  /** For subclasses. */
  protected Padded() {}
}

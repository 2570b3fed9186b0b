package io.nccl4j.bench.data;

/**
 * What a comparison found wrong.
 *
 * @param count elements
 * @param first index of the first of them, from the start of what was compared
 * @param got bits of the first
 * @param expected bits that it should have, or be close to
 */
public record Wrong(long count, long first, long got, long expected) {
  static final Wrong NOTHING = new Wrong(0, 0, 0, 0);

  /** Both, one of which comes after the other. */
  Wrong plus(Wrong later) {
    if (count == 0 || later.count == 0) {
      return count == 0 ? later : this;
    }
    return new Wrong(count + later.count, first, got, expected);
  }

  /** As part of something that starts so many elements before. */
  Wrong shiftedBy(long elements) {
    return count == 0 ? this : new Wrong(count, first + elements, got, expected);
  }

  @Override
  public String toString() {
    return count == 0
        ? "no wrong elements"
        : "%d wrong elements, the first at %d: 0x%x instead of 0x%x"
            .formatted(count, first, got, expected);
  }
}

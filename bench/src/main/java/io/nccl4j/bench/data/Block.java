package io.nccl4j.bench.data;

/**
 * A run of elements with a known content; a buffer's content is a list of these.
 *
 * @param pattern where the elements come from
 * @param first index, in the pattern, of the first element
 * @param count how many elements
 * @param untouched whether they are there before the operation, which must leave them alone
 */
public record Block(Pattern pattern, long first, long count, boolean untouched) {
  /** Elements that the operation writes. */
  public Block(Pattern pattern, long first, long count) {
    this(pattern, first, count, false);
  }
}

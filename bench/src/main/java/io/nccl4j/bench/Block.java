package io.nccl4j.bench;

/**
 * A run of elements with a known content; a buffer's content is a list of these.
 *
 * @param pattern where the elements come from
 * @param first index, in the pattern, of the first element
 * @param count how many elements
 */
record Block(Pattern pattern, long first, long count) {}

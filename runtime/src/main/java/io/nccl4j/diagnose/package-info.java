/**
 * What is wrong with a machine, and what jobs have left behind on it: {@link
 * io.nccl4j.diagnose.Diagnosis} is what {@code nccl4j doctor} prints.
 */
@NullMarked
package io.nccl4j.diagnose;

import org.jspecify.annotations.NullMarked;

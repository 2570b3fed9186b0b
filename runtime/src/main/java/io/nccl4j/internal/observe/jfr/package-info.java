/**
 * Events of the JVM's flight recorder, {@code io.nccl4j.…}. Loaded by name where {@code jdk.jfr} is
 * there.
 */
@NullMarked
package io.nccl4j.internal.observe.jfr;

import org.jspecify.annotations.NullMarked;

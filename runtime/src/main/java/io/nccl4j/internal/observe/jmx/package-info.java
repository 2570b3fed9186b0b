/** MXBeans of the platform's server. Loaded by name where somebody wants them. */
@NullMarked
package io.nccl4j.internal.observe.jmx;

import org.jspecify.annotations.NullMarked;

/**
 * The network between machines: what an engine that carries bytes must offer ({@link
 * io.nccl4j.internal.net.Network}, {@link io.nccl4j.internal.net.Port}), and who drives it. Engines
 * are found as services; nothing here knows one.
 */
@NullMarked
package io.nccl4j.internal.net;

import org.jspecify.annotations.NullMarked;

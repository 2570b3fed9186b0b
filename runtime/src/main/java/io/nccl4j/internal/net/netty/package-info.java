/**
 * A network on Netty: TCP connections between pairs of ports, made when the first message is sent,
 * over which both ends prove to each other that they know the job's secret before anything else
 * counts; through TLS if that is wanted. Whoever owns a port drives its event loop; there are no
 * threads.
 *
 * <p>Netty is an optional dependency: nobody links to this package, which is found as a service.
 */
@NullMarked
package io.nccl4j.internal.net.netty;

import org.jspecify.annotations.NullMarked;

/**
 * What a program shows to JMX where {@link io.nccl4j.CommunicatorConfig#jmx()} is on: an MXBean for
 * each rank of a communicator and one for the process. Clients use these interfaces as proxies.
 */
@NullMarked
package io.nccl4j.management;

import org.jspecify.annotations.NullMarked;

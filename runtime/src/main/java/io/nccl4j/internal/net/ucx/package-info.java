/** A network on UCX: RDMA where there is any, else TCP. For networks that are trusted. */
@NullMarked
package io.nccl4j.internal.net.ucx;

import org.jspecify.annotations.NullMarked;

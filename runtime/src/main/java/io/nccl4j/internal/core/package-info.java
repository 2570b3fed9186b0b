/** What stands behind the API: it finds the backends and hands calls to them. */
@NullMarked
package io.nccl4j.internal.core;

import org.jspecify.annotations.NullMarked;

/** What the launchers of processes say of a job, and how its processes get one unique id. */
@NullMarked
package io.nccl4j.internal.bootstrap.launch;

import org.jspecify.annotations.NullMarked;

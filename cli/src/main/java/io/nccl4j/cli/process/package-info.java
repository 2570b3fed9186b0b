/** Other processes of a command: how they are started, told their ranks, listened to, and ended. */
@NullMarked
package io.nccl4j.cli.process;

import org.jspecify.annotations.NullMarked;

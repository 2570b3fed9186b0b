/** Tests the library on the machine it runs on: once, or for hours. */
@NullMarked
package io.nccl4j.bench.selftest;

import org.jspecify.annotations.NullMarked;

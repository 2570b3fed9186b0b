/**
 * Reads results of nccl4j and of other tools, compares them, and shows them on a page. Nothing here
 * measures.
 */
@NullMarked
package io.nccl4j.bench.report;

import org.jspecify.annotations.NullMarked;

/**
 * What is wrong with a machine, said before it hurts: the check of shared memory that comes before
 * NCCL starts, the files that killed runs left behind, the catalogue of NCCL's variables, and the
 * doctor, which goes through all of it.
 *
 * <p>Nothing here needs a GPU, and nothing but the proof that a file is unused calls the C library.
 */
@NullMarked
package io.nccl4j.internal.diagnose;

import org.jspecify.annotations.NullMarked;

package io.nccl4j.diagnose;

import io.nccl4j.Backend;
import io.nccl4j.Unstable;
import java.nio.file.Path;
import java.util.List;

/** What the runtime does for this package; see {@link io.nccl4j.Provider#get(Class)}. */
@Unstable
public interface DiagnoseProvider {
  /** See {@link Diagnosis#of}. */
  Diagnosis diagnose(Backend backend);

  /** See {@link Diagnosis#removeUnusedSegments}. */
  List<SharedMemorySegment> removeUnusedSegments();

  /** See {@link Diagnosis#removeStaleIds}. */
  List<Path> removeStaleIds();
}

package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.Pmix;
import io.nccl4j.internal.bootstrap.Deadline;
import io.nccl4j.internal.bootstrap.MeetingAddress;
import java.util.Map;
import java.util.Optional;
import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** The key-value space of PMIx, which Open MPI's launcher has, and Slurm's with {@code pmix}. */
final class PmixSpace implements JobSpace {
  private static final Logger LOG = LogManager.getLogger(PmixSpace.class);
  private static final String NAMESPACE = "PMIX_NAMESPACE";

  private final Pmix pmix;

  private PmixSpace(Pmix pmix) {
    this.pmix = pmix;
  }

  static Optional<JobSpace> of(Map<String, String> environment) {
    if (!environment.containsKey(NAMESPACE) || !Libc.isAvailable()) {
      return Optional.empty();
    }
    try {
      return Optional.of(new PmixSpace(Pmix.init()));
    } catch (UnsupportedOperationException | IllegalStateException e) {
      LOG.warn(
          "the launcher cannot be asked: {}; {} names the file of libpmix",
          e.getMessage(),
          Pmix.VARIABLE);
      return Optional.empty();
    }
  }

  @Override
  public String share(String key, int process, String value, Deadline deadline) {
    try {
      if (process == 0) {
        pmix.put(key, value);
      }
      pmix.fence();
      return pmix.get(0, key);
    } catch (IllegalStateException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "the launcher cannot be asked: " + e.getMessage(),
                  "see what it says, or set " + MeetingAddress.VARIABLE)
              .causedBy(e);
    }
  }

  @Override
  public void close() {
    try {
      pmix.end();
    } catch (IllegalStateException e) {
      LOG.debug("the launcher does not hear the farewell", e);
    }
  }
}

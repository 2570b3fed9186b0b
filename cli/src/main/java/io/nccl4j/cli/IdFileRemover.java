package io.nccl4j.cli;

import io.nccl4j.SystemErrorException;
import io.nccl4j.bench.RunInfo;
import io.nccl4j.bench.RunListener;
import io.nccl4j.bench.RunResult;
import io.nccl4j.bench.SizeResult;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

/** Removes the file with the unique id, a secret, once all ranks are connected. */
final class IdFileRemover implements RunListener {
  private final Path file;

  /** Removes {@code file}. */
  IdFileRemover(Path file) {
    this.file = file;
  }

  @Override
  public void started(RunInfo info) {
    remove();
  }

  /** Removes the file if it is still there: it must not outlive a run that failed, either. */
  void remove() {
    try {
      Files.deleteIfExists(file);
    } catch (IOException e) {
      throw (SystemErrorException)
          new SystemErrorException(
                  "cannot remove " + file + ": " + e, "it holds a secret: remove it")
              .causedBy(e);
    }
  }

  @Override
  public void measured(SizeResult result) {}

  @Override
  public void finished(RunResult result) {}
}

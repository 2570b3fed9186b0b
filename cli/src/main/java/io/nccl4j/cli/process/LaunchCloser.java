package io.nccl4j.cli.process;

import io.nccl4j.Launch;
import io.nccl4j.bench.result.RunInfo;
import io.nccl4j.bench.result.RunListener;
import io.nccl4j.bench.result.RunResult;
import io.nccl4j.bench.result.SizeResult;

/** Closes the launch, and so removes the file with the unique id, once all ranks are connected. */
public final class LaunchCloser implements RunListener {
  private final Launch launch;

  /** Closes {@code launch}. */
  public LaunchCloser(Launch launch) {
    this.launch = launch;
  }

  @Override
  public void started(RunInfo info) {
    launch.close();
  }

  @Override
  public void measured(SizeResult result) {}

  @Override
  public void finished(RunResult result) {}
}

package io.nccl4j.cli;

import io.nccl4j.Provider;
import picocli.CommandLine.IVersionProvider;

/** What {@code --version} prints. */
final class Version implements IVersionProvider {
  @Override
  public String[] getVersion() {
    return new String[] {
      "nccl4j " + Provider.get().version(),
      "Java "
          + Runtime.version()
          + " ("
          + System.getProperty("java.vendor")
          + ", "
          + System.getProperty("java.home")
          + ")"
    };
  }
}

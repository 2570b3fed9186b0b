package io.nccl4j;

import java.util.ServiceLoader;
import org.jspecify.annotations.Nullable;

/** Finds the runtime on first use and keeps it; a failed search is repeated by the next call. */
final class ProviderHolder {
  private static volatile @Nullable Provider provider;

  private ProviderHolder() {}

  static Provider get() {
    Provider found = provider;
    return found != null ? found : find();
  }

  private static synchronized Provider find() {
    Provider found = provider;
    if (found == null) {
      found =
          ServiceLoader.load(Provider.class, Provider.class.getClassLoader())
              .findFirst()
              .orElseThrow(
                  () ->
                      new BackendUnavailableException(
                          "no nccl4j runtime was found",
                          "put nccl4j-runtime on the class path or module path"));
      provider = found;
    }
    return found;
  }
}

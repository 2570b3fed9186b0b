package io.nccl4j;

import java.util.List;
import java.util.Optional;

/**
 * What a backend found on this machine, as returned by {@link Backend#info()}. Texts are meant for
 * people; an empty one means unknown, or nothing to say.
 *
 * @param backend the backend, never {@link Backend#AUTO}
 * @param problem why it cannot be used, in one line; empty if it can
 * @param remedy what to do about the problem
 * @param libraries the native libraries it needs
 * @param devices what ranks can run on
 * @param features features present and absent, with the reason
 * @param facts other facts worth knowing, by name
 */
public record BackendInfo(
    Backend backend,
    String problem,
    String remedy,
    List<LibraryInfo> libraries,
    List<DeviceInfo> devices,
    List<FeatureInfo> features,
    List<Fact> facts) {
  /** Copies the lists. */
  public BackendInfo {
    libraries = List.copyOf(libraries);
    devices = List.copyOf(devices);
    features = List.copyOf(features);
    facts = List.copyOf(facts);
  }

  /** Whether communicators can be created on this backend. */
  public boolean isUsable() {
    return problem.isEmpty();
  }

  /** Whether a feature is present. */
  public boolean hasFeature(Feature feature) {
    return feature(feature).map(FeatureInfo::isPresent).orElse(false);
  }

  /** What is known of a feature; empty if it is none of this backend, or nothing was found. */
  public Optional<FeatureInfo> feature(Feature feature) {
    return features.stream().filter(found -> found.feature() == feature).findFirst();
  }

  /**
   * A native library.
   *
   * @param name its file name
   * @param path the file that was loaded; empty if none was
   * @param foundBy the rule that led to the file
   * @param version its version, for example {@code 2.30.7}
   * @param headers the version of the header that nccl4j's bindings were generated from
   * @param floor the oldest version that nccl4j accepts
   * @param problem why it cannot be used, in one line; empty if it can
   * @param tried the places that were tried in vain, each with the reason
   */
  public record LibraryInfo(
      String name,
      String path,
      String foundBy,
      String version,
      String headers,
      String floor,
      String problem,
      List<String> tried) {
    /** Copies the list. */
    public LibraryInfo {
      tried = List.copyOf(tried);
    }

    /** Whether it was loaded. */
    public boolean isFound() {
      return !path.isEmpty();
    }
  }

  /**
   * A device.
   *
   * @param ordinal its number on the backend
   * @param name for example {@code NVIDIA H200}
   * @param computeCapability for example {@code 9.0}
   * @param memoryBytes size of its memory; −1 if unknown
   * @param freeBytes free memory as seen by a process that uses the device; −1 if unknown
   * @param pciAddress as in {@code /sys/bus/pci/devices}
   */
  public record DeviceInfo(
      int ordinal,
      String name,
      String computeCapability,
      long memoryBytes,
      long freeBytes,
      String pciAddress) {}

  /**
   * A capability that not every machine or library has.
   *
   * @param feature what it is
   * @param isPresent whether it can be used here
   * @param needs what it needs
   * @param reason why it is absent, or what limits it
   */
  public record FeatureInfo(Feature feature, boolean isPresent, String needs, String reason) {}

  /**
   * How an operation is carried out: what runs from one size to another.
   *
   * @param operation the method's name
   * @param memory for which buffers: {@code any}, or in words
   * @param leastBytes from how many bytes on: what a rank sends, all its blocks together; of
   *     v-forms the largest block
   * @param mostBytes up to how many; {@link Long#MAX_VALUE} without a limit
   * @param algorithm which rank does what
   * @param protocol how the data travels
   * @param chunkBytes bytes that are moved at once, of each buffer
   * @param reason why
   */
  public record TuningInfo(
      String operation,
      String memory,
      long leastBytes,
      long mostBytes,
      String algorithm,
      String protocol,
      long chunkBytes,
      String reason) {}

  /**
   * Something worth knowing.
   *
   * @param name what it is
   * @param value what was found
   */
  public record Fact(String name, String value) {}
}

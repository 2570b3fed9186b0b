package io.nccl4j.bench.options;

import io.nccl4j.Backend;
import io.nccl4j.CommunicatorConfig;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.cuda.NcclOptions;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How communicators, streams and buffers are made. Immutable, and always valid.
 *
 * @param parallelInit whether each thread joins with its own ranks, instead of one with all
 * @param nullStream whether operations go to CUDA's default stream
 * @param timeoutSeconds after which whoever waits gives up; 0 for the settings' own deadlines
 * @param registration how NCCL is told of the buffers
 * @param ctaPolicy what NCCL saves CTAs for; null leaves it to NCCL
 * @param device kernels that communicate by themselves, if there are to be some
 * @param firstDevice device of each process's first rank; −1 for that with the rank's number
 * @param grouping the groups of ranks; null for one group
 * @param algorithm the algorithm to force; null for none
 * @param protocol the protocol to force; null for none
 */
public record Setup(
    boolean parallelInit,
    boolean nullStream,
    int timeoutSeconds,
    Registration registration,
    NcclOptions.@Nullable CtaPolicy ctaPolicy,
    DeviceImplementation device,
    int firstDevice,
    @Nullable Grouping grouping,
    @Nullable String algorithm,
    @Nullable String protocol) {
  /** Number of the first GPU. */
  static final String DEVICE = "NCCL_TESTS_DEVICE";

  /** How NCCL is told of the buffers; the order is that of nccl-tests' {@code -R}. */
  public enum Registration {
    /** Not at all. */
    NONE,
    /** Each rank for itself. */
    LOCAL,
    /** As windows that collectives use, at the same offset on all ranks. */
    SYMMETRIC
  }

  /**
   * Checks the numbers.
   *
   * @throws InvalidArgumentException if one is out of range, or kernels that communicate have no
   *     windows
   */
  public Setup {
    if (timeoutSeconds < 0) {
      throw new InvalidArgumentException("timeout is " + timeoutSeconds, "use 0 (off) or more");
    }
    if (!device.isNccl() && registration != Registration.SYMMETRIC) {
      throw new InvalidArgumentException(
          "device implementation " + device.number() + " needs symmetric windows", "use -R 2");
    }
  }

  /** What options say; the device and the groups are the environment's to say. */
  public Setup(
      boolean parallelInit,
      boolean nullStream,
      int timeoutSeconds,
      Registration registration,
      NcclOptions.@Nullable CtaPolicy ctaPolicy,
      DeviceImplementation device) {
    this(
        parallelInit,
        nullStream,
        timeoutSeconds,
        registration,
        ctaPolicy,
        device,
        -1,
        null,
        null,
        null);
  }

  /** nccl-tests' defaults. */
  public static Setup standard() {
    return new Setup(false, false, 0, Registration.NONE, null, DeviceImplementation.NONE);
  }

  /**
   * With the device and the groups that the environment asks for.
   *
   * @throws InvalidArgumentException if a variable cannot be understood
   */
  public Setup with(Map<String, String> environment) {
    String number = environment.get(DEVICE);
    int first = firstDevice;
    if (number != null) {
      if (!number.matches("[0-9]{1,4}")) {
        throw new InvalidArgumentException(
            DEVICE + " is '" + number + "'", "use the number of a device");
      }
      first = Integer.parseInt(number);
    }
    return new Setup(
        parallelInit,
        nullStream,
        timeoutSeconds,
        registration,
        ctaPolicy,
        device,
        first,
        Grouping.of(environment),
        algorithm,
        protocol);
  }

  /** The same with what is forced; null for nothing. */
  public Setup forcing(@Nullable String algorithm, @Nullable String protocol) {
    return new Setup(
        parallelInit,
        nullStream,
        timeoutSeconds,
        registration,
        ctaPolicy,
        device,
        firstDevice,
        grouping,
        algorithm,
        protocol);
  }

  /** What of it has no effect on a backend, in words. */
  public List<String> withoutEffect(Backend backend) {
    List<String> texts = new ArrayList<>();
    if (backend == Backend.HOST) {
      if (nullStream) {
        texts.add("-y: the host backend has no default stream");
      }
      if (registration != Registration.NONE) {
        texts.add("-R: buffers of the host backend need no registration");
      }
      if (ctaPolicy != null) {
        texts.add("-x: the host backend has no CTAs");
      }
    }
    return texts;
  }

  /** The communicators' configuration. */
  public CommunicatorConfig config() {
    CommunicatorConfig.Builder config = CommunicatorConfig.builder();
    if (timeoutSeconds > 0) {
      config.operationTimeout(Duration.ofSeconds(timeoutSeconds));
    }
    if (algorithm != null) {
      config.algorithm(algorithm);
    }
    if (protocol != null) {
      config.protocol(protocol);
    }
    if (ctaPolicy != null) {
      config.with(NcclOptions.builder().ctaPolicy(ctaPolicy).build());
    }
    return config.build();
  }
}

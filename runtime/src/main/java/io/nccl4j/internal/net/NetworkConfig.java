package io.nccl4j.internal.net;

import java.net.InetAddress;
import java.time.Duration;
import java.util.Locale;
import java.util.UUID;

/**
 * How a job's ranks reach each other.
 *
 * @param job tells jobs apart: ports of different jobs refuse each other
 * @param secret what both ends of a connection prove to know before anything else they say counts
 * @param local the address to listen at
 * @param ports the TCP ports to listen at
 * @param connectTimeout how long a connection may take to be made and proved
 * @param security what protects what goes over connections
 */
public record NetworkConfig(
    UUID job,
    byte[] secret,
    InetAddress local,
    PortRange ports,
    Duration connectTimeout,
    Security security) {
  /** Least bytes of a secret. */
  public static final int SECRET_BYTES = 16;

  /** Refuses a secret that could be guessed. */
  public NetworkConfig {
    if (secret.length < SECRET_BYTES) {
      throw new IllegalArgumentException(
          "a secret has at least " + SECRET_BYTES + " bytes, not " + secret.length);
    }
    secret = secret.clone();
  }

  /** A copy: nobody changes it. */
  @Override
  public byte[] secret() {
    return secret.clone();
  }

  /** Says nothing of the secret. */
  @Override
  public String toString() {
    return "job " + job + " at " + local.getHostAddress() + ", ports " + ports + ", " + security;
  }

  /** What protects what goes over connections. */
  public enum Security {
    /** Both ends prove that they know the secret; data is neither encrypted nor signed. */
    AUTH,
    /** TLS 1.3 in addition, with certificates that the ranks have told each other. */
    TLS,
    /**
     * The user answers for all who reach this network: engines may be used that ask nobody who they
     * are. Others do what they do for {@link #AUTH}.
     */
    TRUSTED;

    /** As in settings and messages. */
    @Override
    public String toString() {
      return name().toLowerCase(Locale.ROOT);
    }
  }

  /**
   * TCP ports.
   *
   * @param first the first one; 0 for any that is free
   * @param last the last one
   */
  public record PortRange(int first, int last) {
    /** Any that is free. */
    public static final PortRange ANY = new PortRange(0, 0);

    private static final int MAX = 65_535;

    /** Refuses what is no range. */
    public PortRange {
      if (first < 0 || last < first || last > MAX || first == 0 && last != 0) {
        throw new IllegalArgumentException(
            "a range of TCP ports lies between 1 and 65535, as in 7000-7015, not "
                + first
                + "-"
                + last);
      }
    }

    @Override
    public String toString() {
      return first == 0 ? "any" : first + "-" + last;
    }
  }
}

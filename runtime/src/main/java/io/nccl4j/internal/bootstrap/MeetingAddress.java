package io.nccl4j.internal.bootstrap;

import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.internal.machine.LocalAddress;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Where the processes of a job meet over the network, and the secret that they share, as their
 * environment tells them. With these no unique id need travel.
 *
 * @param host name or number of the machine where the process with rank 0 runs
 * @param port its TCP port
 * @param variable that named the machine
 */
public record MeetingAddress(String host, int port, byte[] secret, String variable) {
  public static final String VARIABLE = "NCCL4J_RENDEZVOUS";
  public static final String SECRET = "NCCL4J_SECRET";
  static final String SECRET_FILE = "NCCL4J_SECRET_FILE";

  /** A URI, but names of containers may have underscores. */
  private static final Pattern FORM =
      Pattern.compile("tcp://(?:\\[([^\\]]+)]|([^\\s:/?#@\\[\\]]+)):(\\d{1,5})/?");

  private static final int LEAST_SECRET_BYTES = 16;
  public static final int MOST_PORT = 65_535;
  private static final long PAUSE_MILLIS = 100;

  /**
   * What an environment says; empty if it says nothing.
   *
   * @throws InvalidArgumentException if it says nothing that can be understood
   * @throws InvalidUsageException if there is no secret, or one that could be guessed
   */
  public static Optional<MeetingAddress> of(Map<String, String> environment) {
    if (!isIn(environment)) {
      return Optional.empty();
    }
    String text = environment.getOrDefault(VARIABLE, "").strip();
    Matcher form = FORM.matcher(text);
    int port = form.matches() ? Integer.parseInt(form.group(3)) : 0;
    if (port < 1 || port > MOST_PORT) {
      throw new InvalidArgumentException(
          VARIABLE + " is '" + text + "'",
          "name the machine of rank 0 and a free TCP port there: tcp://node0:29400");
    }
    String host = Objects.requireNonNullElse(form.group(1), form.group(2));
    return Optional.of(new MeetingAddress(host, port, secret(environment), VARIABLE));
  }

  /** Whether an environment says where to meet. */
  public static boolean isIn(Map<String, String> environment) {
    return !environment.getOrDefault(VARIABLE, "").isBlank();
  }

  /** Whether it has a secret, a good one or not. */
  public static boolean hasSecret(Map<String, String> environment) {
    return environment.containsKey(SECRET) || !environment.getOrDefault(SECRET_FILE, "").isEmpty();
  }

  /** What all processes of the job share. */
  public static byte[] secret(Map<String, String> environment) {
    String given = environment.get(SECRET);
    String file = environment.getOrDefault(SECRET_FILE, "");
    if (!hasSecret(environment)) {
      throw new InvalidUsageException(
          VARIABLE + " is set, but no secret, without which anybody could join",
          "give all processes the same secret: at least "
              + LEAST_SECRET_BYTES
              + " letters in "
              + SECRET
              + ", or in a file that "
              + SECRET_FILE
              + " names");
    }
    byte[] secret = given != null ? given.getBytes(StandardCharsets.UTF_8) : read(file);
    if (secret.length < LEAST_SECRET_BYTES) {
      throw new InvalidUsageException(
          "the secret in "
              + (given != null ? SECRET : file)
              + " has "
              + secret.length
              + " bytes, and could be guessed",
          "use at least " + LEAST_SECRET_BYTES + ": openssl rand -hex 32");
    }
    return secret;
  }

  private static byte[] read(String file) {
    try {
      return Files.readString(Path.of(file)).strip().getBytes(StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  SECRET_FILE + " names " + file + ", which cannot be read: " + e.getMessage(),
                  "name a file that all processes of the job can read")
              .causedBy(e);
    }
  }

  /**
   * The id of one of the rendezvous that the job holds at this address.
   *
   * @param job what tells it from others with this secret
   * @param rank that asks
   * @param timeout how long the name may take to be known
   */
  public NetworkId id(String job, int rank, Duration timeout) {
    return NetworkId.derive(secret, job, resolve(rank, Deadline.after(timeout)));
  }

  /** Names of pods and containers are known when they run. */
  private InetSocketAddress resolve(int rank, Deadline deadline) {
    while (true) {
      try {
        InetAddress address = InetAddress.getByName(host);
        // Some systems call themselves 127.0.1.1, where others do not reach them.
        return new InetSocketAddress(
            address.isLoopbackAddress() && !namesLoopback()
                ? LocalAddress.ofDefaultRoute()
                : address,
            port);
      } catch (UnknownHostException e) {
        if (deadline.remainingMillis() <= PAUSE_MILLIS) {
          throw new DeadlineException(
                  host + " could not be resolved within " + deadline,
                  "check the name in " + variable)
              .causedBy(e);
        }
      }
      try {
        Thread.sleep(PAUSE_MILLIS);
      } catch (InterruptedException e) {
        throw Failure.interrupted(rank, e);
      }
    }
  }

  private boolean namesLoopback() {
    try {
      return host.equals("localhost") || InetAddress.ofLiteral(host).isLoopbackAddress();
    } catch (IllegalArgumentException name) {
      return false;
    }
  }

  /** Says nothing of the secret. */
  @Override
  public String toString() {
    return "tcp://" + host + ":" + port;
  }
}

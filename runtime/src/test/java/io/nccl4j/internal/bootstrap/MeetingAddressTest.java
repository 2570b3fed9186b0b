package io.nccl4j.internal.bootstrap;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.DeadlineException;
import io.nccl4j.InterruptedWaitException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.NcclException;
import io.nccl4j.internal.machine.LocalAddress;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Where ranks meet over the network, as variables say it. */
@Timeout(60)
@Tag("parallel")
class MeetingAddressTest {
  private static final String SECRET = "0123456789abcdef";
  private static final Duration SOON = Duration.ofMillis(300);

  @TempDir Path folder;

  private static Map<String, String> environment(String where) {
    return new HashMap<>(Map.of("NCCL4J_RENDEZVOUS", where, "NCCL4J_SECRET", SECRET));
  }

  private static MeetingAddress address(String where) {
    return MeetingAddress.of(environment(where)).orElseThrow();
  }

  private static void fails(
      Class<? extends NcclException> type, String part, Map<String, String> environment) {
    String message = assertThrows(type, () -> MeetingAddress.of(environment)).getMessage();
    assertTrue(message.contains(part), message);
    assertFalse(message.contains(SECRET), message);
  }

  @ParameterizedTest
  @CsvSource({
    "tcp://node0:29400, node0, 29400",
    "' tcp://node0.cluster.local:1/ ', node0.cluster.local, 1",
    "tcp://job_worker_1:65535, job_worker_1, 65535",
    "tcp://10.0.0.7:29400, 10.0.0.7, 29400",
    "tcp://[fd00::2]:29400, fd00::2, 29400"
  })
  void addressesAreUnderstood(String text, String host, int port) {
    MeetingAddress address = address(text);
    assertEquals(host, address.host());
    assertEquals(port, address.port());
    assertArrayEquals(SECRET.getBytes(StandardCharsets.UTF_8), address.secret());
    assertEquals("tcp://" + host + ":" + port, address.toString());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "node0",
        "node0:29400",
        "tcp:node0:29400",
        "http://node0:29400",
        "tcp://node0",
        "tcp://:29400",
        "tcp://node0:0",
        "tcp://node0:65536",
        "tcp://node0:100000",
        "tcp://node0:-1",
        "tcp://node0:x",
        "tcp://node0:29400/job",
        "tcp://user@node0:29400",
        "tcp://fd00::2:29400",
        "tcp://[]:29400",
        "tcp://node 0:29400"
      })
  void whatIsNoAddressIsNamed(String text) {
    fails(
        InvalidArgumentException.class,
        "NCCL4J_RENDEZVOUS is '" + text + "'; name the machine of rank 0 and a free TCP port",
        environment(text));
  }

  @Test
  void nothingIsSaid() {
    for (Map<String, String> none :
        Arrays.asList(Map.of("NCCL4J_SECRET", SECRET), environment(""), environment(" "))) {
      assertEquals(Optional.empty(), MeetingAddress.of(none));
      assertFalse(MeetingAddress.isIn(none));
    }
  }

  // ---- the secret

  @Test
  void secretsThatCouldBeGuessedAreRefused() throws IOException {
    Map<String, String> environment = environment("tcp://node0:29400");
    environment.put("NCCL4J_SECRET", SECRET.substring(1));
    fails(InvalidUsageException.class, "the secret in NCCL4J_SECRET has 15 bytes", environment);
    environment.remove("NCCL4J_SECRET");
    fails(InvalidUsageException.class, "NCCL4J_RENDEZVOUS is set, but no secret", environment);
    Path file = Files.writeString(folder.resolve("secret"), "short\n\n           \n");
    environment.put("NCCL4J_SECRET_FILE", file.toString());
    fails(
        InvalidUsageException.class,
        "the secret in " + file + " has 5 bytes, and could be guessed",
        environment);
  }

  @Test
  void aFileGivesTheSecret() throws IOException {
    Map<String, String> environment = environment("tcp://node0:29400");
    environment.remove("NCCL4J_SECRET");
    Path file = folder.resolve("secret");
    environment.put("NCCL4J_SECRET_FILE", file.toString());
    fails(InvalidArgumentException.class, file + ", which cannot be read", environment);
    Files.writeString(file, SECRET + "\n");
    byte[] secret = MeetingAddress.of(environment).orElseThrow().secret();
    assertArrayEquals(SECRET.getBytes(StandardCharsets.UTF_8), secret);
    Files.write(file, new byte[] {(byte) 0xff, (byte) 0xfe, 0, 1});
    fails(InvalidArgumentException.class, file + ", which cannot be read", environment);
  }

  // ---- the id

  @Test
  void idsComeFromSecretAndJob() {
    MeetingAddress address = address("tcp://127.0.0.1:29400");
    NetworkId id = address.id("job#0", 0, SOON);
    assertEquals(id.toUniqueId(), address.id("job#0", 1, SOON).toUniqueId());
    NetworkId next = address.id("job#1", 0, SOON);
    assertNotEquals(id.name(), next.name());
    assertFalse(Arrays.equals(id.secret(), next.secret()));
    assertEquals("127.0.0.1:29400", id.where());
    Map<String, String> other = environment("tcp://127.0.0.1:29400");
    other.put("NCCL4J_SECRET", SECRET + "g");
    NetworkId others = MeetingAddress.of(other).orElseThrow().id("job#0", 0, SOON);
    assertNotEquals(id.name(), others.name());
    assertFalse(Arrays.equals(id.secret(), others.secret()));
  }

  @ParameterizedTest
  @ValueSource(strings = {"localhost", "127.0.0.1", "127.0.1.1", "[::1]"})
  void theLoopbackAddressIsTakenAtItsWord(String host) {
    NetworkId id = address("tcp://" + host + ":29400").id("job", 0, SOON);
    assertTrue(id.address().getAddress().isLoopbackAddress(), id::toString);
    assertFalse(id.address().isUnresolved());
  }

  /** A name of this machine means the address at which others reach it. */
  @Test
  void aNameIsNoLoopbackAddress() throws IOException {
    String name = InetAddress.getLocalHost().getHostName();
    InetAddress known = InetAddress.getByName(name);
    NetworkId id = address("tcp://" + name + ":29400").id("job", 0, SOON);
    boolean literal = name.equals("localhost") || name.equals(known.getHostAddress());
    assertEquals(
        known.isLoopbackAddress() && !literal ? LocalAddress.ofDefaultRoute() : known,
        id.address().getAddress());
  }

  @Test
  void aNameThatCannotBeResolved() {
    MeetingAddress address = address("tcp://nobody.invalid:29400");
    String message =
        assertThrows(DeadlineException.class, () -> address.id("job", 0, SOON)).getMessage();
    assertTrue(
        message.contains(
            "nobody.invalid could not be resolved within 300 ms; check the name in"
                + " NCCL4J_RENDEZVOUS"),
        message);
  }

  @Test
  void theWaitForANameIsInterruptible() throws InterruptedException {
    MeetingAddress address = address("tcp://nobody.invalid:29400");
    Thread.currentThread().interrupt();
    String message =
        assertThrows(
                InterruptedWaitException.class, () -> address.id("job", 5, Duration.ofSeconds(30)))
            .getMessage();
    assertTrue(Thread.interrupted());
    assertTrue(message.contains("rank 5 was interrupted"), message);
  }
}

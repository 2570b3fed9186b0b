package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.nccl4j.internal.bootstrap.ChildJvm;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * Who stays on one machine pays nothing for the network, not even the loading of its classes; so
 * with JMX and the flight recorder.
 */
@Timeout(60)
final class OneHostTest {
  private static final List<String> ROOMS =
      List.of(
          "io.nccl4j.internal.span.",
          "io.nccl4j.internal.net.",
          "io.netty.",
          "io.nccl4j.internal.observe.jmx.",
          "io.nccl4j.management.",
          "java.lang.management.",
          "javax.management.",
          "jdk.jfr.internal.");

  @TempDir Path folder;

  @Test
  void oneHostLoadsNoClassOfTheNetwork() throws Exception {
    List<String> apart = loaded("apart");
    assertTrue(apart.contains(Span.class.getName()), apart::toString);
    assertTrue(apart.contains("io.nccl4j.internal.net.PortCell"), apart::toString);
    assertEquals(List.of(), loaded("together"));
  }

  /** Netty's pool of buffers would, as soon as it is used. */
  @Test
  void theNetworkDoesNotStartTheFlightRecorder() throws Exception {
    List<String> loaded = loaded("connected");
    assertTrue(loaded.contains("io.netty.channel.Channel"), loaded::toString);
    assertFalse(loaded.contains("jdk.jfr.internal.MetadataRepository"), loaded::toString);
  }

  @Test
  void whatIsNotInTheJavaRuntimeIsNotMissed() throws Exception {
    for (String ranks : List.of("together", "shown")) {
      try (ChildJvm child =
          ChildJvm.start(
              List.of(
                  "--enable-native-access=ALL-UNNAMED",
                  "--limit-modules=java.base,jdk.net",
                  "-Dorg.apache.logging.log4j.simplelog.level=WARN"),
              OneHostMain.class,
              ranks)) {
        if (ranks.equals("shown")) {
          child.expect("WARN Beans jmx is on, but java.management is not in this Java runtime");
        }
        child.expect("used");
      }
    }
  }

  private List<String> loaded(String ranks) throws Exception {
    Path log = folder.resolve(ranks);
    try (ChildJvm child =
        ChildJvm.start(
            List.of(
                "--enable-native-access=ALL-UNNAMED",
                "-Xlog:class+load:file=" + log + "::filecount=0"),
            OneHostMain.class,
            ranks)) {
      child.expect("used");
    }
    return Files.readAllLines(log).stream()
        .flatMap(line -> List.of(line.split(" ")).stream())
        .filter(word -> ROOMS.stream().anyMatch(word::startsWith))
        .filter(name -> !name.equals(OneHostMain.class.getName()) && !name.contains("$$Lambda"))
        .distinct()
        .toList();
  }
}

package io.nccl4j.internal.diagnose;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTimeoutPreemptively;

import io.nccl4j.Setting;
import io.nccl4j.internal.machine.MachineFiles;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Which variables of NCCL are in force, and where they come from. */
class NcclSettingsTest {
  @TempDir Path root;

  private void write(String file, String text) throws IOException {
    Path path = root.resolve(file.substring(1));
    Files.createDirectories(path.getParent());
    Files.writeString(path, text);
  }

  private NcclSettings settings(Map<String, String> environment) {
    return new NcclSettings(new MachineFiles(root, environment));
  }

  @Test
  void environmentComesBeforeTheUsersFileBeforeTheSystems() throws IOException {
    write(
        "/home/me/.nccl.conf",
        "NCCL_ALGO=Ring\nNCCL_DEBUG=INFO\n#NCCL_NET=x\r\nNCCL_DEBUG=TRACE\n");
    write("/etc/nccl.conf", "NCCL_DEBUG=WARN\r\nNCCL_PROTO=LL\r\nPATH=/x\nno line\n");
    Map<String, String> environment = Map.of("HOME", "/home/me", "NCCL_ALGO", "Tree", "TERM", "x");
    NcclSettings settings = settings(environment);
    assertEquals(
        List.of(
            new Setting("NCCL_ALGO", "Tree", "environment"),
            new Setting("NCCL_DEBUG", "INFO", "/home/me/.nccl.conf"),
            new Setting("NCCL_PROTO", "LL", "/etc/nccl.conf")),
        settings.all());
    assertEquals(List.of("/home/me/.nccl.conf", "/etc/nccl.conf"), settings.files());
  }

  @Test
  void namedFileTakesTheUsersPlace() throws IOException {
    write("/home/me/.nccl.conf", "NCCL_ALGO=Ring\n");
    write("/my.conf", "NCCL_PROTO=LL\n");
    Map<String, String> environment = Map.of("HOME", "/home/me", "NCCL_CONF_FILE", "/my.conf");
    NcclSettings settings = settings(environment);
    assertEquals("", settings.value("NCCL_ALGO"));
    assertEquals("LL", settings.value("NCCL_PROTO"));
  }

  /** To open it would wait for a writer, without limit. */
  @Test
  void aPipeIsNotRead() throws Exception {
    String pipe = root.resolve("pipe").toString();
    assertEquals(0, new ProcessBuilder("mkfifo", pipe).start().waitFor(), "mkfifo");
    Map<String, String> environment = Map.of("HOME", "/home/me", "NCCL_CONF_FILE", "/pipe");
    List<Setting> expected = List.of(new Setting("NCCL_CONF_FILE", "/pipe", "environment"));
    assertTimeoutPreemptively(
        Duration.ofSeconds(10), () -> assertEquals(expected, settings(environment).all()));
  }

  @ParameterizedTest(name = "''{0}'' is {1}")
  @CsvSource(
      ignoreLeadingAndTrailingWhitespace = false,
      value = {
        "1,1",
        "0x10,16",
        "010,8",
        " -2 ,-2",
        "4M,4",
        "4194304,4194304",
        "x,",
        "08,0",
        "'',"
      })
  void numbersAreReadAsInC(String text, Long number) {
    OptionalLong expected = number == null ? OptionalLong.empty() : OptionalLong.of(number);
    assertEquals(expected, settings(Map.of("NCCL_BUFFSIZE", text)).number("NCCL_BUFFSIZE"));
  }
}

package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The README's badges are files of the project: they say what is so. */
@Tag("parallel")
class BadgesTest {
  private static String first(String file, String regex) throws IOException {
    Path path = Pages.ROOT.resolve(file);
    Matcher found = Pattern.compile(regex).matcher(Files.readString(path));
    assertTrue(found.find(), () -> path + " has nothing like " + regex);
    return found.group(1);
  }

  private static String badge(String name) throws IOException {
    return first("docs/badges/" + name + ".svg", "<title>(.*)</title>");
  }

  @Test
  void theJavaBadgeNamesTheOldestJava() throws IOException {
    assertEquals("Java: " + first("pom.xml", "<java.floor>(\\d+)<") + "+", badge("java"));
    assertTrue(Files.readString(Pages.ROOT.resolve("README.md")).contains("[![Java 22+]("));
  }

  @Test
  void theLicenceBadgeNamesTheLicence() throws IOException {
    String license = first("pom.xml", "<license>\\s*<name>(.*)</name>");
    assertEquals("licence: " + license, badge("licence"));
    assertEquals("Apache License", first("LICENSE", "^\\s*(\\S+ \\S+)\n"));
  }
}

package io.nccl4j.cli;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.DataInputStream;
import java.io.File;
import java.io.IOException;
import java.lang.module.ModuleFinder;
import java.lang.module.ModuleReference;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.jar.Attributes;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import javax.xml.parsers.DocumentBuilderFactory;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;

/** The jars as they are packaged, and a program that has nothing but what their POM brings. */
@Tag("packaged")
@Timeout(120)
final class PackagedTest {
  private static final Path ROOT = Consumer.root();
  private static final Path LIB = ROOT.resolve("cli/target/lib");

  /** Class files of Java 22, the oldest that is supported. */
  private static final int JAVA_22 = 66;

  private static final Pattern REQUIRES =
      Pattern.compile("requires (?:[a-z]+ )*([a-z][\\w.]+)[ ;]");

  @TempDir Path folder;

  @ParameterizedTest
  @CsvSource({
    "bindings, io.nccl4j.bindings, false",
    "runtime, io.nccl4j.runtime, false",
    "bench, io.nccl4j.bench, true",
    "cli, io.nccl4j.cli, true"
  })
  void aJarSaysWhatItIs(String module, String name, boolean automatic) throws Exception {
    Path path = jar(module);
    try (JarFile jar = new JarFile(path.toFile())) {
      assertNotNull(jar.getEntry("META-INF/LICENSE"));
      assertNotNull(jar.getEntry("META-INF/NOTICE"));
      Attributes manifest = jar.getManifest().getMainAttributes();
      assertEquals(version(), manifest.getValue(Attributes.Name.IMPLEMENTATION_VERSION));
      assertEquals(
          text(ROOT.resolve(module).resolve("pom.xml"), "name"),
          manifest.getValue(Attributes.Name.IMPLEMENTATION_TITLE));
      assertEquals("The nccl4j authors", manifest.getValue(Attributes.Name.IMPLEMENTATION_VENDOR));
    }
    ModuleReference reference = ModuleFinder.of(path).findAll().iterator().next();
    assertEquals(name, reference.descriptor().name());
    assertEquals(automatic, reference.descriptor().isAutomatic());
  }

  /** A preview feature would show as the minor version 65535. */
  @ParameterizedTest
  @CsvSource({"bindings", "runtime", "bench", "cli"})
  void classesAreOfTheOldestJavaAndOfNoPreview(String module) throws IOException {
    int classes = 0;
    try (JarFile jar = new JarFile(jar(module).toFile())) {
      for (JarEntry entry : jar.stream().filter(e -> e.getName().endsWith(".class")).toList()) {
        try (DataInputStream in = new DataInputStream(jar.getInputStream(entry))) {
          in.readInt();
          assertEquals(0, in.readUnsignedShort(), entry::getName);
          int major = in.readUnsignedShort();
          assertTrue(
              entry.getName().equals("module-info.class") ? major <= JAVA_22 : major == JAVA_22,
              () -> entry.getName() + " is of " + major);
        }
        classes++;
      }
    }
    assertTrue(classes > 10, module + " has only " + classes);
  }

  @Test
  void noModuleRequiresWhatItsClassesDoNotUse() throws Exception {
    String found =
        Consumer.output(
            Consumer.tool("jdeps"),
            "--multi-release",
            "base",
            "--module-path",
            LIB.toString(),
            "--add-modules",
            "jdk.incubator.vector",
            "--check",
            "io.nccl4j.runtime");
    int suggestion = found.indexOf("[Suggested module descriptor");
    Set<String> required = required(found.substring(0, suggestion));
    Set<String> used = required(found.substring(suggestion));
    assertTrue(used.contains("org.apache.logging.log4j"), found);
    required.removeAll(used);
    assertEquals(Set.of(), required, found);
  }

  private static Set<String> required(String descriptor) {
    return REQUIRES
        .matcher(descriptor)
        .results()
        .map(requires -> requires.group(1))
        .collect(Collectors.toCollection(TreeSet::new));
  }

  /** By its POM alone: what is optional is not there. */
  @Test
  void aProgramRunsWithWhatThePomBrings() throws Exception {
    List<Path> jars = new ArrayList<>();
    closure(ROOT.resolve("runtime/pom.xml"), jars);
    jars.add(LIB.resolve("nccl4j-runtime.jar"));
    assertEquals(
        Set.of("jspecify.jar", "log4j-api.jar", "nccl4j-bindings.jar", "nccl4j-runtime.jar"),
        jars.stream().map(jar -> jar.getFileName().toString()).collect(Collectors.toSet()));
    Path classes = folder.resolve("classes");
    try (Stream<Path> sources = Files.walk(Consumer.SOURCES.resolve("src/main/java"))) {
      List<String> command = new ArrayList<>();
      command.addAll(List.of(Consumer.tool("javac"), "--release", "22", "-Xlint:all", "-Werror"));
      command.addAll(List.of("-d", classes.toString(), "-p"));
      command.add(
          jars.stream().map(Path::toString).collect(Collectors.joining(File.pathSeparator)));
      sources
          .filter(source -> source.toString().endsWith(".java"))
          .map(Path::toString)
          .forEach(command::add);
      Consumer.output(command.toArray(String[]::new));
    }
    new Consumer(classes, jars).runs(version(), folder.resolve("image"));
  }

  @Test
  void theCommandLineSaysTheVersionOfItsJar() throws Exception {
    String classPath = jar("cli") + File.pathSeparator + LIB + "/*";
    String printed =
        Consumer.output(Consumer.tool("java"), "-cp", classPath, "io.nccl4j.cli.Main", "--version");
    assertTrue(printed.startsWith("nccl4j " + version() + "\n"), printed);
  }

  /** It has no parent to take them from. */
  @Test
  void theBillOfMaterialsAgreesWithTheParent() throws Exception {
    Path parent = ROOT.resolve("pom.xml");
    Path bom = ROOT.resolve("runtime/bom/pom.xml");
    for (String element :
        List.of(
            "version",
            "publish.url",
            "license",
            "developer",
            "scm",
            "organization",
            "issueManagement")) {
      assertEquals(text(parent, element), text(bom, element), element);
    }
    Set<String> managed = new TreeSet<>();
    for (Element dependency : elements(bom, "dependency")) {
      managed.add(text(dependency, "artifactId") + ":" + text(dependency, "version"));
    }
    assertEquals(
        Set.of("nccl4j-bindings:${project.version}", "nccl4j-runtime:${project.version}"), managed);
  }

  // ---------------------------------------------------------------- POMs and jars

  /** What Maven hands on to those who depend on this; our libraries bring nothing else in turn. */
  private static void closure(Path pom, List<Path> jars) throws Exception {
    for (Element dependency : elements(pom, "dependency")) {
      if (!dependency.getParentNode().getParentNode().getNodeName().equals("project")) {
        continue;
      }
      String scope = text(dependency, "scope");
      if (!text(dependency, "optional").equals("true")
          && (scope.isEmpty() || scope.equals("runtime"))) {
        Path jar = LIB.resolve(text(dependency, "artifactId") + ".jar");
        assertTrue(Files.exists(jar), jar::toString);
        jars.add(jar);
      }
    }
  }

  private static Path jar(String module) {
    try {
      return ROOT.resolve(module + "/target/nccl4j-" + module + "-" + version() + ".jar");
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private static String version() throws Exception {
    return text(ROOT.resolve("pom.xml"), "version");
  }

  private static String text(Path pom, String name) throws Exception {
    return text(document(pom), name);
  }

  /** Of the first element of this name, "" if there is none. */
  private static String text(Element in, String name) {
    NodeList found = in.getElementsByTagName(name);
    return found.getLength() == 0 ? "" : found.item(0).getTextContent().strip();
  }

  private static List<Element> elements(Path pom, String name) throws Exception {
    NodeList found = document(pom).getElementsByTagName(name);
    return IntStream.range(0, found.getLength()).mapToObj(i -> (Element) found.item(i)).toList();
  }

  private static Element document(Path pom) throws Exception {
    return DocumentBuilderFactory.newInstance()
        .newDocumentBuilder()
        .parse(pom.toFile())
        .getDocumentElement();
  }
}

package io.nccl4j;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.domain.JavaCodeUnit;
import com.tngtech.archunit.core.domain.JavaField;
import com.tngtech.archunit.core.domain.JavaModifier;
import com.tngtech.archunit.core.domain.JavaType;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.TestInstance;

/** What programs see of the module: only its own exported types, and which of them may change. */
@TestInstance(TestInstance.Lifecycle.PER_CLASS)
@Tag("parallel")
final class PublicApiTest {
  private static final Pattern EXPORTS = Pattern.compile("exports ([\\w.]+);");
  private static final Pattern SECTION =
      Pattern.compile("^## Stability$(.*?)(?=^## |\\z)", Pattern.MULTILINE | Pattern.DOTALL);
  private static final Pattern ROW = Pattern.compile("^\\| (`.*) \\|", Pattern.MULTILINE);
  private static final Pattern NAME = Pattern.compile("`(\\w+)`");

  private final Set<String> exported = exportedPackages();
  private final List<JavaClass> visible = visibleClasses();

  @Test
  void mentionsNoTypeThatIsNotExported() {
    assertTrue(visible.size() > 50, () -> "only " + visible);
    List<String> hidden =
        visible.stream()
            .flatMap(
                type ->
                    mentioned(type)
                        .filter(other -> !isVisible(other))
                        .map(other -> type.getName() + " mentions " + other.getName()))
            .distinct()
            .toList();
    assertEquals(List.of(), hidden);
  }

  @Test
  void theGuideListsWhatMayChange() throws IOException {
    Matcher section = SECTION.matcher(Files.readString(Pages.ROOT.resolve("docs/api.md")));
    assertTrue(section.find(), "docs/api.md has no section Stability");
    Set<String> listed =
        ROW.matcher(section.group(1))
            .results()
            .flatMap(row -> NAME.matcher(row.group(1)).results())
            .map(name -> name.group(1))
            .collect(Collectors.toCollection(TreeSet::new));
    Set<String> marked =
        visible.stream()
            .filter(type -> type.isAnnotatedWith(Unstable.class))
            .map(JavaClass::getSimpleName)
            .collect(Collectors.toCollection(TreeSet::new));
    assertFalse(marked.isEmpty());
    assertEquals(listed, marked);
  }

  private static Set<String> exportedPackages() {
    try {
      String descriptor =
          Files.readString(Pages.ROOT.resolve("runtime/src/main/java/module-info.java"));
      return EXPORTS
          .matcher(descriptor)
          .results()
          .map(exports -> exports.group(1))
          .collect(Collectors.toSet());
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private List<JavaClass> visibleClasses() {
    JavaClasses all =
        new ClassFileImporter()
            .withImportOption(ImportOption.Predefined.DO_NOT_INCLUDE_TESTS)
            .withImportOption(location -> !location.contains("io/nccl4j/internal/"))
            .importPath(location());
    return all.stream()
        .filter(type -> exported.contains(type.getPackageName()) && isVisible(type))
        .toList();
  }

  private static Path location() {
    try {
      return Path.of(
          Communicator.class.getProtectionDomain().getCodeSource().getLocation().toURI());
    } catch (URISyntaxException e) {
      throw new AssertionError(e);
    }
  }

  /** Whether programs can name it. */
  private boolean isVisible(JavaClass type) {
    if (type.isPrimitive() || !type.getName().startsWith("io.nccl4j.")) {
      return true;
    }
    return exported.contains(type.getPackageName())
        && isOpen(type.getModifiers())
        && type.getEnclosingClass().map(this::isVisible).orElse(true);
  }

  private static boolean isOpen(Set<JavaModifier> modifiers) {
    return modifiers.contains(JavaModifier.PUBLIC) || modifiers.contains(JavaModifier.PROTECTED);
  }

  /** The types of all that programs can call, read, catch or extend. */
  private static Stream<JavaClass> mentioned(JavaClass type) {
    Stream<JavaType> parents =
        Stream.concat(type.getSuperclass().stream(), type.getInterfaces().stream());
    Stream<JavaType> fields =
        type.getFields().stream()
            .filter(field -> isOpen(field.getModifiers()))
            .map(JavaField::getType);
    Stream<JavaType> calls =
        type.getCodeUnits().stream()
            .filter(unit -> isOpen(unit.getModifiers()))
            .flatMap(PublicApiTest::mentioned);
    return Stream.of(parents, fields, calls)
        .flatMap(types -> types)
        .flatMap(mentioned -> mentioned.getAllInvolvedRawTypes().stream())
        .map(JavaClass::getBaseComponentType);
  }

  private static Stream<JavaType> mentioned(JavaCodeUnit unit) {
    return Stream.of(
            Stream.of(unit.getReturnType()),
            unit.getParameterTypes().stream(),
            unit.getTypeParameters().stream(),
            unit.getExceptionTypes().stream())
        .flatMap(types -> types);
  }
}

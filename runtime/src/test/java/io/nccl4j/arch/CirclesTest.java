package io.nccl4j.arch;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.tngtech.archunit.core.domain.Dependency;
import com.tngtech.archunit.core.domain.JavaClass;
import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Inside a package, a class should be understood with what lies under it and nothing else. Classes
 * that all refer to each other, by whatever detours, form a circle: it stays small.
 */
@AnalyzeClasses(packages = "io.nccl4j", importOptions = ImportOption.DoNotIncludeTests.class)
final class CirclesTest {
  private static final int LARGEST = 6;

  /**
   * A circle that is larger.
   *
   * @param classes how many it has: when they are fewer, say so here
   * @param reason why
   */
  private record Larger(int classes, String reason) {}

  private static final Map<String, Larger> LARGER =
      Map.of(
          "io.nccl4j",
          new Larger(
              21,
              "static factories know Provider, which knows what they make;"
                  + " settings name who hears of a communicator's failure"));

  @ArchTest
  static void circlesAreSmall(JavaClasses all) {
    Map<String, Map<String, Set<String>>> packages = new TreeMap<>();
    for (JavaClass one : all) {
      String name = outermost(one);
      if (one.getPackageName().startsWith("io.nccl4j.bindings") || name.equals("package-info")) {
        continue;
      }
      Set<String> used =
          packages
              .computeIfAbsent(one.getPackageName(), ignored -> new TreeMap<>())
              .computeIfAbsent(name, ignored -> new TreeSet<>());
      for (Dependency dependency : one.getDirectDependenciesFromSelf()) {
        JavaClass target = dependency.getTargetClass().getBaseComponentType();
        if (target.getPackageName().equals(one.getPackageName())
            && !outermost(target).equals(name)) {
          used.add(outermost(target));
        }
      }
    }
    List<String> wrong = new ArrayList<>();
    packages.forEach(
        (name, classes) -> {
          Set<String> circle = largestCircle(classes);
          System.out.printf(
              "%4d classes, circle of %2d: %s%n", classes.size(), circle.size(), name);
          Larger known = LARGER.get(name);
          if (known == null ? circle.size() > LARGEST : circle.size() != known.classes) {
            wrong.add(name + ": " + circle.size() + " instead of " + known + ": " + circle);
          }
        });
    assertEquals(List.of(), wrong);
  }

  private static String outermost(JavaClass one) {
    return one.getName().substring(one.getPackageName().length() + 1).split("\\$")[0];
  }

  private static Set<String> largestCircle(Map<String, Set<String>> uses) {
    Map<String, Set<String>> reached = new TreeMap<>();
    uses.keySet().forEach(one -> reached.put(one, reachedFrom(one, uses)));
    Set<String> largest = Set.of();
    for (String one : uses.keySet()) {
      Set<String> circle = new TreeSet<>(reached.get(one));
      circle.removeIf(other -> !reached.get(other).contains(one));
      largest = circle.size() > largest.size() ? circle : largest;
    }
    return largest;
  }

  private static Set<String> reachedFrom(String start, Map<String, Set<String>> uses) {
    Set<String> reached = new HashSet<>();
    List<String> ahead = new ArrayList<>(List.of(start));
    while (!ahead.isEmpty()) {
      for (String next : uses.getOrDefault(ahead.removeLast(), Set.of())) {
        if (reached.add(next)) {
          ahead.add(next);
        }
      }
    }
    return reached;
  }

  private CirclesTest() {}
}

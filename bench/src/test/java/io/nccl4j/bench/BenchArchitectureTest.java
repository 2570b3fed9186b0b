package io.nccl4j.bench;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.Architectures.layeredArchitecture;

import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.core.importer.Location;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

/** Holds the rows of {@code bench} in {@code docs/architecture.md}. */
@AnalyzeClasses(
    packages = {"io.nccl4j.bench", "io.nccl4j.jmh"},
    importOptions = BenchArchitectureTest.NoTests.class)
final class BenchArchitectureTest {
  /** Also where tests are not in Maven's folder. */
  static final class NoTests implements ImportOption {
    @Override
    public boolean includes(Location location) {
      return !location.contains("/test-classes/");
    }
  }

  private static final String ROOT = "io.nccl4j.bench";

  @ArchTest
  static final ArchRule IMPORTS_POINT_ONE_WAY =
      layeredArchitecture()
          .consideringOnlyDependenciesInLayers()
          .layer("bench")
          .definedBy(ROOT)
          .layer("machine")
          .definedBy(ROOT + ".machine")
          .layer("data")
          .definedBy(ROOT + ".data")
          .layer("options")
          .definedBy(ROOT + ".options")
          .layer("program")
          .definedBy(ROOT + ".program")
          .layer("result")
          .definedBy(ROOT + ".result")
          .layer("run")
          .definedBy(ROOT + ".run")
          .layer("output")
          .definedBy(ROOT + ".output")
          .layer("selftest")
          .definedBy(ROOT + ".selftest")
          .layer("report")
          .definedBy(ROOT + ".report")
          .layer("jmh")
          .definedBy("io.nccl4j.jmh")
          .whereLayer("bench")
          .mayNotAccessAnyLayer()
          .whereLayer("machine")
          .mayNotAccessAnyLayer()
          .whereLayer("data")
          .mayOnlyAccessLayers("bench")
          .whereLayer("options")
          .mayOnlyAccessLayers("bench")
          .whereLayer("program")
          .mayOnlyAccessLayers("bench", "data", "options")
          .whereLayer("result")
          .mayOnlyAccessLayers("bench", "machine", "options", "program")
          .whereLayer("run")
          .mayOnlyAccessLayers("bench", "machine", "data", "options", "program", "result")
          .whereLayer("output")
          .mayOnlyAccessLayers("bench", "machine", "options", "program", "result", "run")
          .whereLayer("selftest")
          .mayOnlyAccessLayers("bench", "machine", "data", "options", "program", "run", "output")
          .whereLayer("report")
          .mayOnlyAccessLayers("bench", "machine", "result")
          .whereLayer("jmh")
          .mayOnlyAccessLayers("program");

  @ArchTest
  static final ArchRule EVERY_PACKAGE_HAS_A_PLACE =
      classes()
          .should()
          .resideInAnyPackage(
              ROOT,
              ROOT + ".machine",
              ROOT + ".data",
              ROOT + ".options",
              ROOT + ".program",
              ROOT + ".result",
              ROOT + ".run",
              ROOT + ".output",
              ROOT + ".selftest",
              ROOT + ".report",
              "io.nccl4j.jmh..");

  @ArchTest
  static final ArchRule ONLY_THE_API_OF_THE_LIBRARY =
      noClasses()
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage("io.nccl4j.internal..", "io.nccl4j.bindings..", "io.nccl4j.cli..");

  private BenchArchitectureTest() {}
}

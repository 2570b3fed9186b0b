package io.nccl4j.cli;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.core.importer.Location;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

/** Holds the row of {@code cli} in {@code docs/architecture.md}. */
@AnalyzeClasses(packages = "io.nccl4j.cli", importOptions = CliArchitectureTest.NoTests.class)
final class CliArchitectureTest {
  /** Also where tests are not in Maven's folder. */
  static final class NoTests implements ImportOption {
    @Override
    public boolean includes(Location location) {
      return !location.contains("/test-classes/");
    }
  }

  @ArchTest
  static final ArchRule ONLY_THE_API_AND_BENCH =
      noClasses()
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage(
              "io.nccl4j.internal..",
              "io.nccl4j.bindings..",
              "io.nccl4j.jmh..",
              "io.nccl4j.bench.data..");

  private CliArchitectureTest() {}
}

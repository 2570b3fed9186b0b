package io.nccl4j.cli;

import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;

/** Holds the row of {@code cli} in {@code docs/architecture.md}. */
@AnalyzeClasses(packages = "io.nccl4j.cli", importOptions = ImportOption.DoNotIncludeTests.class)
final class CliArchitectureTest {
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

package io.nccl4j.arch;

import static com.tngtech.archunit.base.DescribedPredicate.describe;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.Architectures.layeredArchitecture;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.domain.JavaCall;
import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;
import java.lang.foreign.Linker;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import org.junit.jupiter.api.Tag;

/**
 * Holds the import rules of {@code docs/architecture.md}: who may use whom, and where native calls
 * and incubating modules live. A package that doesn't exist yet breaks no rule.
 */
@AnalyzeClasses(packages = "io.nccl4j", importOptions = ImportOption.DoNotIncludeTests.class)
@Tag("parallel")
final class ArchitectureTest {
  private static final String API = "io.nccl4j";
  private static final String API_MEMORY = API + ".memory";
  private static final String API_CUDA = API + ".cuda";
  private static final String API_DIAGNOSE = API + ".diagnose";
  private static final String API_LAUNCH = API + ".launch";
  private static final String API_MANAGEMENT = API + ".management";
  private static final String CHECK = "io.nccl4j.internal.check";
  private static final String BINDINGS = "io.nccl4j.bindings..";
  private static final String[] GENERATED = {
    "io.nccl4j.bindings.cuda..", "io.nccl4j.bindings.nccl.."
  };

  @ArchTest
  static final ArchRule IMPORTS_POINT_ONE_WAY =
      layeredArchitecture()
          .consideringOnlyDependenciesInLayers()
          .withOptionalLayers(true)
          .layer("api")
          .definedBy(API)
          .layer("api.memory")
          .definedBy(API_MEMORY)
          .layer("api.cuda")
          .definedBy(API_CUDA)
          .layer("api.diagnose")
          .definedBy(API_DIAGNOSE)
          .layer("api.launch")
          .definedBy(API_LAUNCH)
          .layer("api.management")
          .definedBy(API_MANAGEMENT)
          .layer("check")
          .definedBy(CHECK)
          .layer("bindings")
          .definedBy(BINDINGS)
          .layer("machine")
          .definedBy("io.nccl4j.internal.machine..")
          .layer("observe")
          .definedBy("io.nccl4j.internal.observe")
          .layer("observe.jfr")
          .definedBy("io.nccl4j.internal.observe.jfr..")
          .layer("observe.jmx")
          .definedBy("io.nccl4j.internal.observe.jmx..")
          .layer("spi")
          .definedBy("io.nccl4j.internal.spi..")
          .layer("operation")
          .definedBy("io.nccl4j.internal.operation..")
          .layer("array")
          .definedBy("io.nccl4j.internal.array..")
          .layer("schedule")
          .definedBy("io.nccl4j.internal.schedule..")
          .layer("memory")
          .definedBy("io.nccl4j.internal.memory..")
          .layer("bootstrap")
          .definedBy("io.nccl4j.internal.bootstrap..")
          .layer("diagnose")
          .definedBy("io.nccl4j.internal.diagnose..")
          .layer("liveness")
          .definedBy("io.nccl4j.internal.liveness..")
          .layer("net")
          .definedBy("io.nccl4j.internal.net")
          .layer("net.netty")
          .definedBy("io.nccl4j.internal.net.netty..")
          .layer("net.ucx")
          .definedBy("io.nccl4j.internal.net.ucx..")
          .layer("host.kernel")
          .definedBy("io.nccl4j.internal.host.kernel..", "io.nccl4j.internal.host.vector..")
          .layer("host.layout")
          .definedBy("io.nccl4j.internal.host.layout..")
          .layer("host.memory")
          .definedBy("io.nccl4j.internal.host.memory..")
          .layer("host.engine")
          .definedBy("io.nccl4j.internal.host.engine..")
          .layer("host.life")
          .definedBy("io.nccl4j.internal.host.life..")
          .layer("host.progress")
          .definedBy("io.nccl4j.internal.host.progress..")
          .layer("host.join")
          .definedBy("io.nccl4j.internal.host.join..")
          .layer("host")
          .definedBy("io.nccl4j.internal.host")
          .layer("span")
          .definedBy("io.nccl4j.internal.span..")
          .layer("cuda.driver")
          .definedBy("io.nccl4j.internal.cuda.driver..")
          .layer("cuda.memory")
          .definedBy("io.nccl4j.internal.cuda.memory..")
          .layer("cuda.module")
          .definedBy("io.nccl4j.internal.cuda.module..")
          .layer("cuda.nccl")
          .definedBy("io.nccl4j.internal.cuda.nccl..")
          .layer("cuda")
          .definedBy("io.nccl4j.internal.cuda")
          .layer("core")
          .definedBy("io.nccl4j.internal.core..")
          .whereLayer("api")
          .mayNotAccessAnyLayer()
          .whereLayer("api.memory")
          .mayOnlyAccessLayers("api", "check")
          .whereLayer("api.cuda")
          .mayOnlyAccessLayers("api", "api.memory", "check")
          .whereLayer("api.diagnose")
          .mayOnlyAccessLayers("api", "api.memory", "api.cuda", "check")
          .whereLayer("api.launch")
          .mayOnlyAccessLayers("api", "check")
          .whereLayer("api.launch")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("api.management")
          .mayOnlyAccessLayers("api", "api.memory")
          .whereLayer("check")
          .mayOnlyAccessLayers("api")
          .whereLayer("bindings")
          .mayNotAccessAnyLayer()
          .whereLayer("machine")
          .mayOnlyAccessLayers("api", "bindings")
          .whereLayer("observe")
          .mayOnlyAccessLayers("api")
          .whereLayer("observe.jfr")
          .mayOnlyAccessLayers("api", "observe")
          .whereLayer("observe.jfr")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("observe.jmx")
          .mayOnlyAccessLayers("api", "api.memory", "api.management", "observe")
          .whereLayer("observe.jmx")
          .mayNotBeAccessedByAnyLayer()
          .whereLayer("spi")
          .mayOnlyAccessLayers("api", "api.memory", "api.cuda", "machine", "observe")
          .whereLayer("operation")
          .mayOnlyAccessLayers("api", "spi")
          .whereLayer("array")
          .mayOnlyAccessLayers("api", "operation")
          .whereLayer("schedule")
          .mayOnlyAccessLayers("api", "machine", "observe", "spi", "operation", "array")
          .whereLayer("memory")
          .mayOnlyAccessLayers("api", "api.memory", "machine", "spi")
          .whereLayer("bootstrap")
          .mayOnlyAccessLayers("api", "api.diagnose", "machine", "spi", "bindings")
          .whereLayer("diagnose")
          .mayOnlyAccessLayers("api", "api.diagnose", "machine", "spi", "bindings")
          .whereLayer("liveness")
          .mayOnlyAccessLayers("api", "spi", "bindings")
          .whereLayer("net")
          .mayOnlyAccessLayers("api", "spi")
          .whereLayer("net.netty")
          .mayOnlyAccessLayers("api", "observe", "net")
          .whereLayer("net.ucx")
          .mayOnlyAccessLayers("api", "observe", "net", "spi", "bindings")
          .whereLayer("host.kernel")
          .mayOnlyAccessLayers("api", "machine", "spi", "bindings")
          .whereLayer("host.layout")
          .mayOnlyAccessLayers(
              "api", "machine", "spi", "operation", "schedule", "bindings", "liveness")
          .whereLayer("host.memory")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "bootstrap",
              "bindings",
              "host.layout")
          .whereLayer("host.engine")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "host.kernel",
              "host.layout",
              "host.memory")
          .whereLayer("span")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "machine",
              "spi",
              "operation",
              "schedule",
              "bootstrap",
              "net",
              "host.kernel",
              "host.memory",
              "host.engine",
              "host")
          .whereLayer("host.life")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "bindings",
              "liveness",
              "host.layout",
              "host.memory",
              "host.engine")
          .whereLayer("host.progress")
          .mayOnlyAccessLayers(
              "api",
              "machine",
              "spi",
              "schedule",
              "bindings",
              "host.layout",
              "host.memory",
              "host.engine",
              "host.life")
          .whereLayer("host.join")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "observe",
              "spi",
              "schedule",
              "bootstrap",
              "bindings",
              "host.layout",
              "host.memory",
              "host.engine",
              "host.life")
          .whereLayer("host")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "bootstrap",
              "bindings",
              "liveness",
              "host.layout",
              "host.memory",
              "host.kernel",
              "host.engine",
              "host.life",
              "host.progress",
              "host.join")
          .whereLayer("cuda.driver")
          .mayOnlyAccessLayers("api", "api.cuda", "spi", "schedule", "bindings")
          .whereLayer("cuda.memory")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "api.cuda",
              "spi",
              "schedule",
              "memory",
              "bindings",
              "cuda.driver")
          .whereLayer("cuda.module")
          .mayOnlyAccessLayers(
              "api", "api.cuda", "spi", "schedule", "bindings", "cuda.driver", "cuda.memory")
          .whereLayer("cuda.nccl")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "api.cuda",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "bootstrap",
              "diagnose",
              "bindings",
              "liveness",
              "cuda.driver",
              "cuda.memory")
          .whereLayer("cuda")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "api.cuda",
              "machine",
              "spi",
              "operation",
              "schedule",
              "memory",
              "bootstrap",
              "diagnose",
              "bindings",
              "liveness",
              "cuda.driver",
              "cuda.memory",
              "cuda.module",
              "cuda.nccl")
          .whereLayer("core")
          .mayOnlyAccessLayers(
              "api",
              "api.memory",
              "api.cuda",
              "api.diagnose",
              "check",
              "machine",
              "spi",
              "schedule",
              "bootstrap",
              "diagnose")
          .whereLayer("core")
          .mayNotBeAccessedByAnyLayer()
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule NO_CYCLES =
      slices().matching("io.nccl4j.internal.(**)").should().beFreeOfCycles();

  @ArchTest
  static final ArchRule API_STANDS_ALONE =
      classes()
          .that()
          .resideInAPackage(API)
          .should()
          .onlyDependOnClassesThat()
          .resideInAnyPackage(API, "java..", "org.jspecify..")
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule ITS_SUBPACKAGES_HAVE_NO_INTERNALS =
      classes()
          .that()
          .resideInAnyPackage(API_MEMORY, API_CUDA, API_DIAGNOSE, API_LAUNCH, API_MANAGEMENT)
          .should()
          .onlyDependOnClassesThat()
          .resideInAnyPackage(
              API,
              API_MEMORY,
              API_CUDA,
              API_DIAGNOSE,
              API_LAUNCH,
              API_MANAGEMENT,
              CHECK,
              "java..",
              "org.jspecify..")
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule EVERY_PACKAGE_HAS_A_PLACE =
      classes()
          .should()
          .resideInAnyPackage(
              API,
              API_MEMORY,
              API_CUDA,
              API_DIAGNOSE,
              API_LAUNCH,
              API_MANAGEMENT,
              CHECK,
              BINDINGS,
              "io.nccl4j.internal.machine..",
              "io.nccl4j.internal.observe",
              "io.nccl4j.internal.observe.jfr..",
              "io.nccl4j.internal.observe.jmx..",
              "io.nccl4j.internal.spi..",
              "io.nccl4j.internal.operation..",
              "io.nccl4j.internal.array..",
              "io.nccl4j.internal.schedule..",
              "io.nccl4j.internal.memory..",
              "io.nccl4j.internal.bootstrap..",
              "io.nccl4j.internal.diagnose..",
              "io.nccl4j.internal.liveness..",
              "io.nccl4j.internal.net..",
              "io.nccl4j.internal.span..",
              "io.nccl4j.internal.host",
              "io.nccl4j.internal.host.kernel..",
              "io.nccl4j.internal.host.vector..",
              "io.nccl4j.internal.host.layout..",
              "io.nccl4j.internal.host.memory..",
              "io.nccl4j.internal.host.engine..",
              "io.nccl4j.internal.host.life..",
              "io.nccl4j.internal.host.progress..",
              "io.nccl4j.internal.host.join..",
              "io.nccl4j.internal.cuda..",
              "io.nccl4j.internal.core..")
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule NATIVE_LOOKUP_ONLY_IN_BINDINGS =
      noClasses()
          .that()
          .resideOutsideOfPackage(BINDINGS)
          .should()
          .dependOnClassesThat()
          .areAssignableTo(Linker.class)
          .orShould()
          .dependOnClassesThat()
          .areAssignableTo(SymbolLookup.class)
          .allowEmptyShould(true);

  /** Generated code aside, which wraps what it gets from C. */
  @ArchTest
  static final ArchRule REINTERPRET_IN_ONE_CLASS =
      noClasses()
          .that()
          .resideOutsideOfPackages(GENERATED)
          .and()
          .doNotHaveFullyQualifiedName("io.nccl4j.bindings.MemoryAccess")
          .should()
          .callCodeUnitWhere(
              describe(
                  "is MemorySegment.reinterpret",
                  (JavaCall<?> call) ->
                      call.getName().equals("reinterpret")
                          && call.getTargetOwner().isAssignableTo(MemorySegment.class)))
          .allowEmptyShould(true);

  /** A call of a function that the library lacks breaks the class: who calls has asked before. */
  @ArchTest
  static final ArchRule GENERATED_CODE_HAS_TWO_CALLERS =
      noClasses()
          .that()
          .resideOutsideOfPackages(
              BINDINGS, "io.nccl4j.internal.cuda..", "io.nccl4j.internal.diagnose..")
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage(GENERATED)
          .allowEmptyShould(true);

  /** It is optional: who links to it does not start without it. */
  @ArchTest
  static final ArchRule NETTY_ONLY_IN_ITS_NETWORK =
      noClasses()
          .that()
          .resideOutsideOfPackage("io.nccl4j.internal.net.netty..")
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage("io.netty..", "io.nccl4j.internal.net.netty..")
          .allowEmptyShould(true);

  /** A Java runtime may lack the flight recorder: who links to it does not start without it. */
  @ArchTest
  static final ArchRule FLIGHT_RECORDER_ONLY_IN_ITS_ROOM =
      noClasses()
          .that()
          .resideOutsideOfPackage("io.nccl4j.internal.observe.jfr..")
          .should()
          .dependOnClassesThat()
          .resideInAPackage("jdk.jfr..")
          .allowEmptyShould(true);

  /** So with JMX, which is not even loaded before somebody wants it. */
  @ArchTest
  static final ArchRule JMX_ONLY_IN_ITS_ROOM =
      noClasses()
          .that()
          .resideInAPackage("io.nccl4j..")
          .and()
          .resideOutsideOfPackages(
              "io.nccl4j.internal.observe.jmx..", "io.nccl4j.bench..", "io.nccl4j.cli..")
          .should()
          .dependOnClassesThat()
          .resideInAnyPackage("java.lang.management..", "javax.management..")
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule INCUBATOR_ONLY_IN_VECTOR =
      noClasses()
          .that()
          .resideOutsideOfPackage("io.nccl4j.internal.host.vector..")
          .should()
          .dependOnClassesThat()
          .resideInAPackage("jdk.incubator..")
          .allowEmptyShould(true);

  /** The vector kernels load only where the incubator module is: nothing may link to them. */
  @ArchTest
  static final ArchRule VECTOR_IS_FOUND_BY_NAME =
      noClasses()
          .that()
          .resideOutsideOfPackage("io.nccl4j.internal.host.vector..")
          .should()
          .dependOnClassesThat()
          .resideInAPackage("io.nccl4j.internal.host.vector..")
          .allowEmptyShould(true);

  @ArchTest
  static final ArchRule ONLY_THE_LOGGING_API =
      noClasses()
          .should()
          .dependOnClassesThat()
          .resideInAPackage("org.apache.logging.log4j.core..")
          .allowEmptyShould(true);

  private ArchitectureTest() {}
}

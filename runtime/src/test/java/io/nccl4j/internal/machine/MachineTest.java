package io.nccl4j.internal.machine;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.sun.management.HotSpotDiagnosticMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.condition.EnabledOnOs;
import org.junit.jupiter.api.condition.OS;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** What is read of a machine's files, of this one's and of made ones. */
class MachineTest {
  @TempDir Path root;

  private ProcessFiles processes() {
    return new MachineFiles(root, Map.of()).processes();
  }

  private void write(String absolute, String text) throws IOException {
    Path file = root.resolve(absolute.substring(1));
    Files.createDirectories(file.getParent());
    Files.writeString(file, text, StandardCharsets.ISO_8859_1);
  }

  @ParameterizedTest
  @CsvSource(
      delimiter = '|',
      value = {"3|{3}", "0-2,5|{0, 1, 2, 5}", "64-65|{64, 65}", "''|{}", "1,x|{}", "a-b|{}"})
  void listsOfProcessors(String list, String processors) {
    assertEquals(processors, Affinity.parse(list).toString());
  }

  @Test
  void aNameWithBracesHidesNoStart() throws IOException {
    String fields = " 0 0 0 0 0 %d 0 0 0 0 0 0 0 0 0 0 0 0 4711 0\n";
    write("/proc/7/stat", "7 (a) b (c) S" + fields.formatted(0));
    write("/proc/8/stat", "8 (a) Z" + fields.formatted(0));
    write("/proc/9/stat", "9 (a) R" + fields.formatted(4));
    assertEquals(4711, processes().startOf(7));
    assertEquals(0, processes().startOf(8), "a zombie");
    assertEquals(0, processes().startOf(9), "ending");
    assertEquals(0, processes().startOf(10), "none");
    assertEquals(List.of(7L, 8L, 9L), processes().ids().stream().sorted().toList());
  }

  @Test
  void aVariableIsFoundByItsWholeName() throws IOException {
    write("/proc/7/environ", "A_RANK=1\0RANK=\0");
    assertTrue(processes().hasVariable(7, "A_RANK"));
    assertTrue(processes().hasVariable(7, "RANK"));
    assertFalse(processes().hasVariable(7, "A"));
    assertFalse(processes().hasVariable(8, "RANK"));
  }

  /** A container may use some of them only. */
  @Test
  void allProcessorsAreCounted() throws IOException {
    write("/sys/devices/system/cpu/online", "0-4095,5000-5999\n");
    assertEquals(5096, Machine.allProcessors(new MachineFiles(root, Map.of())));
  }

  @Test
  void whatIsNotThereIsNotKnown() throws IOException {
    assertEquals("", processes().command(7));
    assertEquals("", processes().status("Seccomp"));
    assertEquals(Machine.PROCESSORS, Machine.allProcessors(new MachineFiles(root, Map.of())));
    assertEquals(-1, processes().softLimit("Max open files"));
    assertTrue(processes().namespace("pid").isEmpty());
    assertTrue(processes().owner().isEmpty());
    assertTrue(processes().ownerNumber().isEmpty());
    assertTrue(ControlGroups.of(new MachineFiles(root, Map.of())).tightest().isEmpty());
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void thisMachineTells() throws IOException {
    long pid = ProcessHandle.current().pid();
    assertTrue(ProcessFiles.HERE.startOf(pid) > 0);
    assertTrue(ProcessFiles.HERE.exists(pid));
    assertTrue(ProcessFiles.HERE.ids().contains(pid));
    assertFalse(ProcessFiles.HERE.command(pid).isEmpty());
    assertTrue(ProcessFiles.HERE.softLimit("Max open files") > 0);
    assertTrue(ProcessFiles.HERE.namespace("net").orElse(0) > 0);
    assertEquals(System.getProperty("user.name"), ProcessFiles.HERE.owner().get().getName());
    assertTrue(Machine.memoryBytes() > Runtime.getRuntime().maxMemory() / 4);
    assertFalse(Machine.processorName().isEmpty());
    assertFalse(Machine.hostName().isEmpty());
  }

  @Test
  @EnabledOnOs(OS.LINUX)
  void compilersAreFound() {
    assertTrue(CompilerThreads.areVisible());
    assertTrue(CompilerThreads.nanos() > 0);
    HotSpotDiagnosticMXBean jvm =
        ManagementFactory.getPlatformMXBean(HotSpotDiagnosticMXBean.class);
    String level = jvm.getVMOption("TieredStopAtLevel").getValue();
    assertEquals(level.equals("4"), CompilerThreads.anyOptimizes());
  }

  @Test
  void bytesForPeople() {
    assertEquals("0 B", ByteSizes.text(0));
    assertEquals("1023 B", ByteSizes.text(1023));
    assertEquals("1.0 KiB", ByteSizes.text(1024));
    assertEquals("36.8 MiB", ByteSizes.text(38_584_320));
    assertEquals("2.0 TiB", ByteSizes.text(2L << 40));
  }
}

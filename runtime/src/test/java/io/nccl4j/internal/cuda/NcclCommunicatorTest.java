package io.nccl4j.internal.cuda;

import io.nccl4j.internal.bootstrap.ChildJvm;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.Assertions;
import org.junit.jupiter.api.DynamicTest;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.TestFactory;

/**
 * What only NCCL's communicators can do, over stand-ins of its newest and its oldest release. A
 * process can load one: each release has a child process, which runs the trials.
 */
@Tag("parallel")
class NcclCommunicatorTest {
  @TestFactory
  List<DynamicTest> newestRelease() throws InterruptedException {
    return trials(StandIn.NCCL_2_30, NcclTrials.class);
  }

  @TestFactory
  List<DynamicTest> oldestRelease() throws InterruptedException {
    return trials(StandIn.NCCL_2_19, NcclOldTrials.class);
  }

  @TestFactory
  List<DynamicTest> memoryOfNewestRelease() throws InterruptedException {
    return trials(StandIn.NCCL_2_30, MemoryTrials.class);
  }

  @TestFactory
  List<DynamicTest> memoryOfOldestRelease() throws InterruptedException {
    return trials(StandIn.NCCL_2_19, MemoryTrials.class);
  }

  private static List<DynamicTest> trials(int version, Class<?> main) throws InterruptedException {
    StandIn standIn = StandIn.require(version);
    List<DynamicTest> tests = new ArrayList<>();
    try (ChildJvm child = ChildJvm.start(main, standIn.cuda(), standIn.nccl(), version)) {
      int count = Integer.parseInt(child.expect(Trials.COUNT));
      for (int i = 0; i < count; i++) {
        String result = child.expect(Trials.RESULT);
        String name = result.split(" ", 2)[0];
        String failure = result.substring(name.length()).strip();
        tests.add(
            DynamicTest.dynamicTest(
                name, () -> Assertions.assertEquals("", failure.replace("\\n", "\n"))));
      }
      Assertions.assertEquals(0, child.await());
    }
    return tests;
  }
}

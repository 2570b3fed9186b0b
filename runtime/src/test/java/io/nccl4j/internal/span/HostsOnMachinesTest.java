package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.stream.IntStream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Two machines, one with two hosts, such as containers. */
@Tag("parallel")
class HostsOnMachinesTest {
  private final Hosts hosts = hosts(4, 2);

  private static Hosts hosts(int processorsOf7, int processorsOf9) {
    int[] machineOf = {7, 7, 7, 9, 7, 9};
    int[] processors =
        IntStream.of(machineOf).map(of -> of == 7 ? processorsOf7 : processorsOf9).toArray();
    return new Hosts(new int[] {0, 0, 1, 2, 1, 2}, machineOf, processors);
  }

  @Test
  void ranksOfAMachineAreThoseOfItsHosts() {
    assertEquals(4, hosts.onMachineOf(0));
    assertEquals(4, hosts.onMachineOf(4));
    assertEquals(2, hosts.onMachineOf(5));
    assertEquals(2, hosts.size(hosts.of(0)));
  }

  @Test
  void aPartOfThemIsWhereItWas() {
    Hosts some = hosts.part(new int[] {5, 4, 1});
    assertEquals(3, some.count());
    assertEquals(1, some.onMachineOf(0));
    assertEquals(2, some.onMachineOf(1));
    assertEquals(2, some.onMachineOf(2));
  }

  @Test
  void theyAreCrowdedIfOneMachineHasTooFewProcessors() {
    assertFalse(hosts.areCrowded());
    assertTrue(hosts(3, 2).areCrowded());
    assertTrue(hosts(4, 1).areCrowded());
    assertTrue(hosts(3, 2).part(new int[] {0, 1, 2, 4}).areCrowded());
    assertFalse(hosts(3, 2).part(new int[] {0, 1, 2, 3, 5}).areCrowded());
  }
}

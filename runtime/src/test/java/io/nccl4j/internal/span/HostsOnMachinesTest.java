package io.nccl4j.internal.span;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Two machines, one with two hosts, such as containers. */
@Tag("parallel")
class HostsOnMachinesTest {
  private final Hosts hosts = new Hosts(new int[] {0, 0, 1, 2, 1, 2}, new int[] {7, 7, 7, 9, 7, 9});

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
}

package io.nccl4j.internal.net;

/** The contract for the network of tests, so that they can rely on it. */
final class FakePortTest extends PortContract {
  private FakeNetwork network = new FakeNetwork(1);

  @Override
  Network open() {
    network = new FakeNetwork(42);
    return network;
  }

  @Override
  void tick() {
    network.step();
  }
}

package io.nccl4j.internal.bootstrap;

import io.nccl4j.UniqueId;
import io.nccl4j.internal.net.Relay;
import java.io.IOException;

/** Ids whose rendezvous is reached through a relay. */
public final class RelayedId {
  private RelayedId() {}

  /** The same id with a relay before the rendezvous. */
  public static UniqueId through(Relay relay, UniqueId id) throws IOException {
    NetworkId direct = NetworkId.of(id);
    return new NetworkId(direct.name(), direct.secret(), relay.to(direct.address())).toUniqueId();
  }
}

package io.nccl4j.internal.schedule;

import io.nccl4j.Communicator;

/** Work that nobody carries out. */
public final class IdleWork extends Work {
  /** One. */
  public IdleWork() {
    super(false);
  }

  @Override
  public Communicator owner() {
    throw new UnsupportedOperationException("no communicator");
  }

  @Override
  protected String awaited() {
    throw new UnsupportedOperationException("nobody waits");
  }
}

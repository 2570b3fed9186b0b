package io.nccl4j.internal.observe;

import java.util.List;

/** What nobody records. */
enum NoEvent implements Recorder.JoinEvent, Recorder.ConnectEvent {
  INSTANCE;

  @Override
  public void joined(String name, String backend, List<Integer> ranks, int nranks) {}

  @Override
  public void failed(Throwable cause) {}

  @Override
  public void ended(String failure) {}
}

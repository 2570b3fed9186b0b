package io.nccl4j.internal.observe;

import org.apache.logging.log4j.LogManager;
import org.apache.logging.log4j.Logger;

/** Finds the flight recorder, whose module a runtime image may lack. */
final class RecorderHolder {
  private static final String NAME = "io.nccl4j.internal.observe.jfr.FlightRecording";

  private RecorderHolder() {}

  /** The flight recorder's, or one that records nothing. */
  static Recorder find() {
    try {
      return (Recorder) Class.forName(NAME).getDeclaredConstructor().newInstance();
    } catch (ReflectiveOperationException | LinkageError e) {
      Logger log = LogManager.getLogger(RecorderHolder.class);
      log.debug("no events are recorded, because jdk.jfr is not in this Java runtime", e);
      return new Recorder() {};
    }
  }
}

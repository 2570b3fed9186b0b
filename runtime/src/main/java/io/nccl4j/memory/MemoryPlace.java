package io.nccl4j.memory;

/** Where memory lies. Sums across places are meaningless: each has its own limits. */
public enum MemoryPlace {
  /** Memory of a GPU. */
  DEVICE("device"),
  /** The host backend's memory file, which processes share; it is not in {@code /dev/shm}. */
  SHARED("shared"),
  /** Page-locked memory of the host. */
  PINNED("pinned"),
  /** Other native memory of the process. */
  NATIVE("native"),
  /** The JVM's heap. */
  HEAP("heap"),
  /** Files in {@code /dev/shm}. */
  SHM("/dev/shm");

  private final String label;

  MemoryPlace(String label) {
    this.label = label;
  }

  /** The short name in tables. */
  public String label() {
    return label;
  }
}

package io.nccl4j.memory;

/** What memory is for. */
public enum MemoryPurpose {
  /** Buffers of the program, device memory or page-locked. */
  USER("user", "buffers of the program"),
  /** Buffers of the program that a communicator has registered. */
  WINDOW("window", "buffers of the program that a communicator has registered"),
  /** Chunks of memory pools. */
  POOL("pool", "chunks of memory pools"),
  /** Shared state through which ranks coordinate: control block, outboxes, lanes, ledger. */
  CONTROL("control", "control block: outboxes, lanes, ledger"),
  /** Copies of buffers that other processes cannot reach. */
  STAGING("staging", "copies of buffers that other processes cannot reach"),
  /** Chunks of messages from buffers that other processes cannot reach. */
  MESSAGE("message", "chunks of messages from such buffers"),
  /** Messages from and to other hosts. */
  NETWORK("network", "messages from and to other hosts"),
  /** What barriers reduce. */
  BARRIER("barrier", "what barriers reduce"),
  /** Copies between arrays of Java and the device. */
  COPY("copy", "copies between arrays of Java and the device"),
  /** Unfinished works. */
  FIFO("FIFO", "unfinished works"),
  /** NCCL's tables of peers, for each channel. */
  CHANNEL("channel", "tables of peers of each channel"),
  /** NCCL's buffers between two GPUs, for collectives. */
  RING("ring", "buffers of each channel to its neighbours in the ring"),
  /** The same, for allReduces that NCCL chooses to run along a tree. */
  TREE("tree", "buffers of each channel to its other neighbours in a tree"),
  /** NCCL's buffers between two GPUs, for sends and receives. */
  EXCHANGE("send and receive", "buffers of each channel to each peer"),
  /** Buffers and credits of multicast: NVLink SHARP. */
  NVLS("NVLS", "multicast buffers and credits"),
  /** Operations that wait for NCCL's proxy thread. */
  PROXY("proxy", "operations that wait for NCCL's proxy thread"),
  /** What NCCL took without saying for what. */
  NCCL("NCCL", "what NCCL took and does not divide"),
  /** Taken from the system, but in no buffer. */
  UNUSED("unused", "taken from the system, in no buffer");

  private final String label;
  private final String text;

  MemoryPurpose(String label, String text) {
    this.label = label;
    this.text = text;
  }

  /** The short name in tables. */
  public String label() {
    return label;
  }

  /** A description in words. */
  public String text() {
    return text;
  }
}

package io.nccl4j.internal.observe;

/** An operation as observers see it. */
public interface Observed {
  /** Name of its communicator. */
  String communicatorName();

  /** This rank. */
  int rank();

  /** Number of ranks. */
  int nranks();

  /** The method's name. */
  String label();

  /** Number of that method, the same in all communicators. */
  int kind();

  /** Whether all ranks call it. */
  boolean isCollective();

  /** Sequence number: of the communicator for collectives, of the pair of ranks for messages. */
  long sequence();

  /** Element type. */
  String typeLabel();

  /** Reduction; empty if it reduces nothing. */
  String reductionLabel();

  /** Root or peer; −1 if it has none. */
  int rootOrPeer();

  /** Elements, by the operation's own meaning of count. */
  long elements();

  /** The larger of what this rank sends and what it receives. */
  long bytes();

  /** Number of its stream; 0 if it is in none. */
  long streamNumber();

  /** How the backend carries it out, once that is known; empty if the backend does not tell. */
  String protocol();

  /** Whom or what it waits for, in words. */
  String awaited();
}

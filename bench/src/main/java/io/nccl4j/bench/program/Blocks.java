package io.nccl4j.bench.program;

import java.util.stream.LongStream;

/**
 * How an operation divides the buffers of a rank: whether one side, or both, have a block for each
 * rank.
 */
public enum Blocks {
  /** No elements at all. */
  NONE {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      return new Shape(0, 0, 0, 0, 0);
    }
  },
  /** All of it, on both sides. */
  EVEN {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      return new Shape(elements, elements, elements, 0, 0);
    }
  },
  /** All of it, sent to the next rank and received from the one before. */
  RING {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      return EVEN.shape(elements, elementBytes, nranks);
    }

    @Override
    long sent(Shape shape, int rank) {
      return rank * shape.count();
    }

    @Override
    LongStream received(Shape shape, int rank, int nranks) {
      return LongStream.of(sent(shape, (rank + nranks - 1) % nranks));
    }
  },
  /** A block is sent, all of them are received. */
  GATHERED {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      long block = Shape.block(elements, elementBytes, nranks);
      return new Shape(block, nranks * block, block, block, 0);
    }
  },
  /** All blocks are sent, one is received. */
  SCATTERED {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      long block = Shape.block(elements, elementBytes, nranks);
      return new Shape(nranks * block, block, block, 0, block);
    }
  },
  /** All blocks are sent, as many are received. */
  EXCHANGED {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      long block = Shape.block(elements, elementBytes, nranks);
      return new Shape(nranks * block, nranks * block, block, 0, 0);
    }

    @Override
    long sent(Shape shape, int rank) {
      return rank * shape.sendCount();
    }

    @Override
    LongStream received(Shape shape, int rank, int nranks) {
      return LongStream.range(0, nranks)
          .map(from -> from * shape.sendCount() + rank * shape.count());
    }
  };

  /** What a size means; see {@link Program#shape}. */
  abstract Shape shape(long elements, int elementBytes, int nranks);

  /** Where, in the pattern of all ranks' data, lies what a rank sends. */
  long sent(Shape shape, int rank) {
    return rank * shape.sendInPlaceOffset();
  }

  /** Where in the pattern lie the parts, of one length, of what a rank receives. */
  LongStream received(Shape shape, int rank, int nranks) {
    return LongStream.of(rank * shape.recvInPlaceOffset());
  }

  /** Whether there is a block for each rank, of which a rank's own stays where it is. */
  public boolean divided() {
    return this == GATHERED || this == SCATTERED || this == EXCHANGED;
  }

  /** Whether the buffers that are sent and received can be the same, or lie within each other. */
  boolean inPlace() {
    return this == EVEN || this == GATHERED || this == SCATTERED;
  }
}

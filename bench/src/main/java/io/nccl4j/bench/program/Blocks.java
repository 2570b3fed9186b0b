package io.nccl4j.bench.program;

/** What a rank's buffers hold of a size that is, or is not, divided into a block for each rank. */
enum Blocks {
  /** All of it, on both sides. */
  EVEN {
    @Override
    Shape shape(long elements, int elementBytes, int nranks) {
      return new Shape(elements, elements, elements, 0, 0);
    }

    @Override
    double busFactor(int nranks) {
      return 1;
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
  };

  /** What a size means; see {@link Program#shape}. */
  abstract Shape shape(long elements, int elementBytes, int nranks);

  /** See {@link Program#busFactor}: where there are blocks, a rank's own stays where it is. */
  double busFactor(int nranks) {
    return (nranks - 1.0) / nranks;
  }
}

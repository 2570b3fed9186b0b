package io.nccl4j.bench.program;

import io.nccl4j.Communicator;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.Arrays;

/** A program on a backend that does not do what it should. */
public final class FaultyProgram extends DelegatingProgram {
  /** What is wrong with the backend. */
  public enum Fault {
    /** Nothing: a check that the wrapper itself is right. */
    NONE,
    /** Nothing is done at all. */
    NOTHING_DONE,
    /** Some bytes of what the last rank holds are written over. */
    BYTES_OVERWRITTEN,
    /** Only the first half of the elements is done. */
    HALF_MISSING,
    /** It is another reduction. */
    OTHER_REDUCTION
  }

  private static final int OVERWRITTEN = 8;

  private final Fault fault;

  public FaultyProgram(Program original, Fault fault) {
    super(original);
    this.fault = fault;
  }

  @Override
  public PreparedCall prepare(
      Communicator communicator,
      DeviceBuffer send,
      DeviceBuffer recv,
      Case size,
      ReduceOp op,
      Stream stream) {
    PreparedCall operation = super.prepare(faulty(communicator), send, recv, size, op, stream);
    int last = stages(communicator.nranks()) - 1;
    boolean done =
        switch (fault) {
          case NOTHING_DONE -> false;
          // Half an operation whose data lies within the result's would be refused.
          case HALF_MISSING -> send.byteSize() == recv.byteSize() || !overlap(send, recv);
          default -> true;
        };
    return stage -> {
      if (done) {
        operation.issue(stage);
      }
      // Groups are launched at once, as each thread of these tests drives one rank.
      if (fault == Fault.BYTES_OVERWRITTEN
          && stage == last
          && communicator.rank() == communicator.nranks() - 1) {
        stream.fill(recv.slice(0, OVERWRITTEN), (byte) 0x5a);
      }
    };
  }

  private static boolean overlap(DeviceBuffer a, DeviceBuffer b) {
    return a.address() < b.address() + b.byteSize() && b.address() < a.address() + a.byteSize();
  }

  private Communicator faulty(Communicator communicator) {
    return (Communicator)
        Proxy.newProxyInstance(
            Communicator.class.getClassLoader(),
            new Class<?>[] {Communicator.class},
            (proxy, method, arguments) -> invoke(communicator, method, arguments));
  }

  private Object invoke(Communicator communicator, Method method, Object[] arguments)
      throws Throwable {
    Object[] changed = arguments == null ? new Object[0] : arguments.clone();
    for (int i = 0; i < changed.length; i++) {
      changed[i] = change(changed[i]);
    }
    try {
      return method.invoke(communicator, changed);
    } catch (InvocationTargetException e) {
      throw e.getCause();
    }
  }

  private Object change(Object argument) {
    if (fault == Fault.HALF_MISSING) {
      // Roots and peers are ints, counts and displacements longs.
      if (argument instanceof Long count) {
        return count / 2;
      }
      if (argument instanceof long[] counts) {
        return Arrays.stream(counts).map(count -> count / 2).toArray();
      }
    }
    if (fault == Fault.OTHER_REDUCTION && argument instanceof ReduceOp op) {
      return switch (op.kind()) {
        case SUM, PRE_MUL_SUM, PROD, AVG -> ReduceOp.MAX;
        case MAX -> ReduceOp.MIN;
        case MIN -> ReduceOp.MAX;
      };
    }
    return argument;
  }
}

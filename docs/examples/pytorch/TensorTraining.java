import io.nccl4j.Backend;
import io.nccl4j.Communicator;
import io.nccl4j.DataType;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Launch;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.lang.foreign.MemorySegment;
import java.nio.ByteOrder;
import java.nio.FloatBuffer;
import java.util.Arrays;
import java.util.Locale;
import java.util.SplittableRandom;
import org.bytedeco.javacpp.FloatPointer;
import org.bytedeco.javacpp.PointerScope;
import org.bytedeco.pytorch.LinearImpl;
import org.bytedeco.pytorch.SGD;
import org.bytedeco.pytorch.SGDOptions;
import org.bytedeco.pytorch.ScalarTypeOptional;
import org.bytedeco.pytorch.SequentialImpl;
import org.bytedeco.pytorch.TanhImpl;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.TensorVector;
import org.bytedeco.pytorch.global.torch;

/**
 * Data-parallel training with PyTorch, by JavaCPP. The gradients of all parameters are one buffer:
 * backward adds to it, allReduce averages it, the optimizer reads it. Ranks are the processes of a
 * launcher, or threads: {@code TensorTraining [threads]}.
 */
public class TensorTraining {
  private static final int EXAMPLES = 480;
  private static final int STEPS = 400;

  public static void main(String[] args) throws Exception {
    torch.set_num_threads(1); // The ranks are what runs in parallel.
    int threads = args.length > 0 ? Integer.parseInt(args[0]) : 2;
    Launch.run(Backend.HOST, threads, TensorTraining::train);
  }

  @SuppressWarnings("try") // Scopes free the tensors that are made in them.
  private static void train(Communicator comm) {
    try (PointerScope scope = new PointerScope();
        Stream stream = comm.device().newStream()) {
      SequentialImpl model = model(comm.rank());
      TensorVector parameters = model.parameters();
      broadcast(parameters, comm, stream);
      long count = Arrays.stream(parameters.get()).mapToLong(Tensor::numel).sum();
      try (DeviceBuffer gradients = comm.device().allocate(DataType.FLOAT32, count)) {
        MemorySegment memory = gradients.hostSegment().orElseThrow();
        bindGradients(parameters, memory);
        SGD optimizer = new SGD(parameters, new SGDOptions(0.2));
        Tensor inputs = inputs(comm.rank(), comm.nranks());
        Tensor products = inputs.prod(1, true, new ScalarTypeOptional());
        float[] loss = new float[1];
        for (int step = 0; step < STEPS; step++) {
          try (PointerScope temporary = new PointerScope()) {
            memory.fill((byte) 0);
            Tensor error = torch.mse_loss(model.forward(inputs), products);
            error.backward();
            comm.allReduce(gradients, gradients, count, DataType.FLOAT32, ReduceOp.AVG, stream);
            stream.synchronize();
            optimizer.step();
            loss[0] = error.item_float();
          }
          if (step == 0 || step == STEPS - 1) {
            comm.floats().allReduce(loss, ReduceOp.AVG);
            if (comm.rank() == 0) {
              System.out.printf(Locale.ROOT, "loss %.3f in step %d%n", loss[0], step);
            }
          }
        }
        float[] most = new float[64];
        parameters.get(0).data_ptr_float().get(most);
        float[] least = most.clone();
        comm.allReduce(most, ReduceOp.MAX);
        comm.allReduce(least, ReduceOp.MIN);
        if (comm.rank() == 0) {
          System.out.println("the same weights on all ranks: " + Arrays.equals(most, least));
        }
      }
    }
  }

  /** PyTorch's random numbers are the process's: one rank draws at a time. */
  private static synchronized SequentialImpl model(int seed) {
    torch.manual_seed(seed);
    SequentialImpl model = new SequentialImpl();
    model.push_back(new LinearImpl(2, 32));
    model.push_back(new TanhImpl());
    model.push_back(new LinearImpl(32, 1));
    return model;
  }

  /** All ranks begin with the weights of rank 0: the tensors' own memory, wrapped. */
  @SuppressWarnings("restricted") // An address becomes a segment.
  private static void broadcast(TensorVector parameters, Communicator comm, Stream stream) {
    for (Tensor tensor : parameters.get()) {
      MemorySegment memory = MemorySegment.ofAddress(tensor.data_ptr().address());
      try (DeviceBuffer buffer = comm.device().wrap(memory.reinterpret(tensor.nbytes()))) {
        comm.broadcast(buffer, buffer, tensor.numel(), DataType.FLOAT32, 0, stream);
        stream.synchronize();
      }
    }
  }

  /** Makes each gradient a tensor over its part of the memory. Backward keeps it and adds to it. */
  private static void bindGradients(TensorVector parameters, MemorySegment memory) {
    FloatBuffer all = memory.asByteBuffer().order(ByteOrder.nativeOrder()).asFloatBuffer();
    for (Tensor tensor : parameters.get()) {
      FloatPointer part = new FloatPointer(all.slice(all.position(), (int) tensor.numel()));
      tensor.mutable_grad().put(torch.from_blob(part, tensor.sizes().vec().get()));
      all.position(all.position() + (int) tensor.numel());
    }
  }

  /** This rank's part of all inputs, whatever the number of ranks. */
  private static Tensor inputs(int rank, int nranks) {
    float[] all = new float[2 * EXAMPLES];
    SplittableRandom random = new SplittableRandom(1);
    for (int i = 0; i < all.length; i++) {
      all[i] = (float) random.nextDouble(-1, 1);
    }
    int from = EXAMPLES * rank / nranks;
    int to = EXAMPLES * (rank + 1) / nranks;
    return torch.tensor(Arrays.copyOfRange(all, 2 * from, 2 * to)).reshape(to - from, 2);
  }
}

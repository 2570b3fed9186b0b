package io.nccl4j.internal.cuda;

import io.nccl4j.Backend;
import io.nccl4j.BackendUnavailableException;
import io.nccl4j.Communicator;
import io.nccl4j.Communicators;
import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.Event;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.ReduceOp;
import io.nccl4j.Stream;
import java.util.Arrays;
import java.util.List;
import java.util.stream.IntStream;

/** A process with libraries of its own: says why there is no backend, or uses it. */
public final class CudaVersionMain {
  private CudaVersionMain() {}

  public static void main(String[] args) {
    try {
      System.out.println("devices " + Device.all(Backend.CUDA).size());
    } catch (BackendUnavailableException e) {
      System.out.println("unavailable " + e.problem() + " | " + e.remedy());
      again();
      return;
    }
    try (CudaRig rig = new CudaRig(0, 2, CudaRig.CONFIG)) {
      rig.checkSums();
      List<Throwable> thrown = CudaRig.outcomes(2, rank -> blocks(rig, rank));
      thrown.forEach(e -> System.out.println("rank " + e));
      smallFloats(rig);
    }
    scaleAlone();
    StandIn standIn = StandIn.require(Integer.parseInt(args[0]));
    for (String function : List.of("ncclAlltoAll", "ncclGather", "ncclScatter", "ncclSend")) {
      System.out.println("calls " + function + " " + standIn.calls(function));
    }
  }

  /** A second question has the same answer. */
  private static void again() {
    try {
      System.out.println("devices " + Device.all(Backend.CUDA).size());
    } catch (BackendUnavailableException e) {
      System.out.println("again " + e.problem());
    }
  }

  private static void blocks(CudaRig rig, int rank) {
    Stream stream = rig.streams.get(rank);
    DeviceBuffer in = rig.in.get(rank);
    DeviceBuffer out = rig.out.get(rank);
    int[] values = {10 * rank, 10 * rank + 1};
    in.copyFrom(values);
    try (Event event = in.device().newEvent()) {
      rig.communicators.get(rank).allToAll(in, out, 1, DataType.INT32, stream);
      stream.record(event);
      event.synchronize();
      print(rank, "allToAll", out, 2);
      rig.communicators.get(rank).gather(in, out, 1, DataType.INT32, 1, stream);
      stream.synchronize();
      print(rank, "gather", out, 2);
      rig.communicators.get(rank).scatter(in, out, 1, DataType.INT32, 0, stream);
      stream.synchronize();
      print(rank, "scatter", out, 1);
    }
  }

  /** One rank scales its elements: all of them, also where they are no whole parts of 16 KiB. */
  private static void scaleAlone() {
    ReduceOp twice = ReduceOp.preMulSum(2.0);
    for (int count : new int[] {1, 2047, 2048, 4096, 4099, 65_536, 65_537, 200_003}) {
      try (Communicators alone =
              Communicator.initAll(List.of(Device.all(Backend.CUDA).getFirst()), CudaRig.CONFIG);
          Stream stream = alone.get(0).device().newStream();
          DeviceBuffer in = alone.get(0).device().allocate(DataType.FLOAT64, count + 1);
          DeviceBuffer out = alone.get(0).device().allocate(DataType.FLOAT64, count + 1)) {
        double[] values = new double[count + 1];
        Arrays.setAll(values, i -> i + 1);
        in.copyFrom(values);
        DataType type = DataType.FLOAT64;
        Communicator comm = alone.get(0);
        for (String form : List.of("allReduce", "reduce", "reduceScatter", "reduceScatterV")) {
          stream.fill(out, (byte) 0);
          switch (form) {
            case "allReduce" -> comm.allReduce(in, out, count, type, twice, stream);
            case "reduce" -> comm.reduce(in, out, count, type, twice, 0, stream);
            case "reduceScatter" -> comm.reduceScatter(in, out, count, type, twice, stream);
            default -> comm.reduceScatterV(in, out, new long[] {count}, type, twice, stream);
          }
          stream.synchronize();
          double[] scaled = out.toDoubles();
          long wrong =
              IntStream.rangeClosed(0, count)
                  .filter(i -> scaled[i] != (i < count ? 2 * values[i] : 0))
                  .count();
          System.out.println("alone " + form + " of " + count + ": " + wrong + " wrong");
        }
      }
    }
  }

  private static void print(int rank, String operation, DeviceBuffer out, int count) {
    int[] values = new int[count];
    out.copyTo(values);
    System.out.println(operation + " " + rank + " " + Arrays.toString(values));
  }

  private static void smallFloats(CudaRig rig) {
    try {
      rig.communicators
          .get(0)
          .allReduce(
              rig.in.getFirst(),
              rig.out.getFirst(),
              1,
              DataType.FLOAT8_E4M3,
              ReduceOp.SUM,
              rig.streams.getFirst());
      rig.communicators.forEach(io.nccl4j.Communicator::abort);
      System.out.println("float8 accepted");
    } catch (InvalidArgumentException e) {
      System.out.println("float8 " + e.getMessage());
    }
  }
}

package io.nccl4j.internal.bootstrap.launch;

import io.nccl4j.DeadlineException;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.SystemErrorException;
import io.nccl4j.bindings.DescriptorIo;
import io.nccl4j.bindings.Descriptors;
import io.nccl4j.bindings.Libc;
import io.nccl4j.bindings.LibcException;
import io.nccl4j.internal.bootstrap.Deadline;
import io.nccl4j.internal.bootstrap.Failure;
import io.nccl4j.internal.bootstrap.MeetingAddress;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * The key-value space of PMI, version 1, whose lines of text travel on an inherited descriptor.
 * MPICH's launcher (Hydra) has it, and Slurm's {@code srun --mpi=pmi2}.
 */
final class PmiSpace implements JobSpace {
  private static final String DESCRIPTOR = "PMI_FD";

  private static final int READ_BYTES = 4096;
  private static final long SLICE_MILLIS = 100;
  private static final Pattern FIELD = Pattern.compile("(\\w+)=(\\S*)");

  private final int fd;
  private final StringBuilder unread = new StringBuilder();
  private String name = "";
  private boolean isClosed;

  private PmiSpace(int fd) {
    this.fd = fd;
  }

  /**
   * The one that an environment names; empty if there is none, or it cannot be used here.
   *
   * @throws InvalidArgumentException if what names it cannot be understood
   */
  static Optional<JobSpace> of(Map<String, String> environment) {
    String number = environment.get(DESCRIPTOR);
    if (number == null || !Libc.isAvailable()) {
      return Optional.empty();
    }
    try {
      return Optional.of(new PmiSpace(Integer.parseInt(number)));
    } catch (NumberFormatException e) {
      throw (InvalidArgumentException)
          new InvalidArgumentException(
                  DESCRIPTOR + " is '" + number + "', not a descriptor",
                  "unset it, or start the process with MPICH's launcher or srun --mpi=pmi2")
              .causedBy(e);
    }
  }

  @Override
  public String share(String key, int process, String value, Deadline deadline) {
    try {
      if (name.isEmpty()) {
        ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", process, deadline);
        name = field(ask("cmd=get_my_kvsname", "my_kvsname", process, deadline), "kvsname");
      }
      if (process == 0) {
        ask(
            "cmd=put kvsname=" + name + " key=" + key + " value=" + value,
            "put_result",
            process,
            deadline);
      }
      ask("cmd=barrier_in", "barrier_out", process, deadline);
      return field(
          ask("cmd=get kvsname=" + name + " key=" + key, "get_result", process, deadline), "value");
    } catch (LibcException e) {
      throw Failure.ofSystem("the launcher cannot be asked", e);
    }
  }

  private String ask(String request, String expected, int process, Deadline deadline) {
    DescriptorIo.write(fd, (request + "\n").getBytes(StandardCharsets.US_ASCII));
    String answer = line(process, deadline);
    String failed = optional(answer, "rc").filter(rc -> !rc.equals("0")).orElse("");
    if (!field(answer, "cmd").equals(expected) || !failed.isEmpty()) {
      throw new SystemErrorException(
          "the launcher answered '" + answer + "' to '" + request.split(" value=")[0] + "'",
          "set " + MeetingAddress.VARIABLE + " and " + MeetingAddress.SECRET + " instead");
    }
    return answer;
  }

  private String line(int process, Deadline deadline) {
    while (unread.indexOf("\n") < 0) {
      if (deadline.passed()) {
        throw new DeadlineException(
            "the launcher did not answer within " + deadline,
            "see whether all processes of the job run");
      }
      if (Thread.interrupted()) {
        throw Failure.interrupted(process, new InterruptedException());
      }
      if (Descriptors.poll(fd, Descriptors.POLLIN, SLICE_MILLIS) != 0) {
        byte[] bytes = DescriptorIo.read(fd, READ_BYTES);
        if (bytes.length == 0) {
          throw new SystemErrorException(
              "the launcher has ended", "see its output; it ends its processes, too");
        }
        unread.append(new String(bytes, StandardCharsets.US_ASCII));
      }
    }
    int end = unread.indexOf("\n");
    String line = unread.substring(0, end);
    unread.delete(0, end + 1);
    return line;
  }

  private static String field(String answer, String name) {
    return optional(answer, name).orElse("");
  }

  private static Optional<String> optional(String answer, String name) {
    Matcher fields = FIELD.matcher(answer);
    while (fields.find()) {
      if (fields.group(1).equals(name)) {
        return Optional.of(fields.group(2));
      }
    }
    return Optional.empty();
  }

  /** Tells the launcher that this process may end; without that it ends all others. */
  @Override
  public void close() {
    if (!name.isEmpty() && !isClosed) {
      isClosed = true;
      try {
        DescriptorIo.write(fd, "cmd=finalize\n".getBytes(StandardCharsets.US_ASCII));
      } catch (LibcException e) {
        // It has ended, and so will this process.
        return;
      }
    }
  }
}

package io.nccl4j.internal.cuda.module;

import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.internal.cuda.memory.KernelArgument;
import java.lang.foreign.MemorySegment;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.jspecify.annotations.Nullable;

/**
 * The parameters of a kernel as its PTX declares them. The driver takes what it is given by
 * address, and would read beyond arguments that are too few or too short.
 */
record PtxSignature(List<Parameter> parameters) {
  private static final Pattern COMMENTS = Pattern.compile("//[^\n]*|/\\*.*?\\*/", Pattern.DOTALL);
  private static final Pattern ENTRY =
      Pattern.compile("\\.entry\\s+([\\w$%]+)\\s*(?:\\(([^)]*)\\))?");
  private static final Pattern PARAMETER =
      Pattern.compile("\\.param(?:\\s*\\.align\\s+\\d+)?\\s*\\.(\\w+)[^,\\[]*(?:\\[(\\d+)])?");
  private static final Pattern NUMBER = Pattern.compile("[busf](8|16|32|64)");

  /**
   * A parameter.
   *
   * @param type PTX's fundamental type without its dot, for example {@code u64}
   * @param bytes size in bytes
   * @param isStructure whether it is an array of bytes, passed by value
   */
  record Parameter(String type, int bytes, boolean isStructure) {
    /** Whether the argument has this type; buffers count as pointers. */
    boolean takes(@Nullable Object argument) {
      if (isStructure) {
        return argument instanceof MemorySegment segment && segment.byteSize() == bytes
            || argument instanceof KernelArgument own
                && own.isStructure()
                && own.value().byteSize() == bytes;
      }
      boolean isFloat = type.startsWith("f");
      return switch (argument) {
        case Byte ignored -> bytes == Byte.BYTES;
        // There is no half in Java: its bits.
        case Short ignored -> bytes == Short.BYTES;
        case Integer ignored -> bytes == Integer.BYTES && !isFloat;
        case Long ignored -> bytes == Long.BYTES && !isFloat;
        case DeviceBuffer ignored -> bytes == Long.BYTES && !isFloat;
        case KernelArgument own -> !own.isStructure() && bytes == Long.BYTES && !isFloat;
        case Float ignored -> type.equals("f32") || type.equals("b32");
        case Double ignored -> type.equals("f64") || type.equals("b64");
        case null, default -> false;
      };
    }

    /** In the words of the API. */
    @Override
    public String toString() {
      return isStructure ? "structure of " + bytes + " bytes" : "." + type;
    }
  }

  /** The kernels of a module by their names, in the order of the text. */
  static Map<String, PtxSignature> parse(String ptx) {
    Map<String, PtxSignature> all = new LinkedHashMap<>();
    Matcher entry = ENTRY.matcher(COMMENTS.matcher(ptx).replaceAll(" "));
    while (entry.find()) {
      String list = Optional.ofNullable(entry.group(2)).orElse("");
      all.put(
          entry.group(1),
          new PtxSignature(
              PARAMETER
                  .matcher(list)
                  .results()
                  .map(found -> parameter(found.group(1), found.group(2)))
                  .toList()));
    }
    return all;
  }

  private static Parameter parameter(String type, @Nullable String length) {
    Matcher number = NUMBER.matcher(type);
    // Textures and the like have no size, and nothing that could be passed.
    int bytes = number.matches() ? Integer.parseInt(number.group(1)) / Byte.SIZE : 0;
    return length == null
        ? new Parameter(type, bytes, false)
        : new Parameter(type, bytes * Integer.parseInt(length), true);
  }

  /**
   * Checks the number and the types of arguments.
   *
   * @param kernel its name, for the message
   */
  void requireFitting(String kernel, Object[] arguments) {
    if (arguments.length != parameters.size()) {
      throw new InvalidArgumentException(
          "kernel " + kernel + " got " + arguments.length + " arguments",
          "it takes " + parameters.size() + ": " + this);
    }
    for (int i = 0; i < arguments.length; i++) {
      if (!parameters.get(i).takes(arguments[i])) {
        throw new InvalidArgumentException(
            "argument " + i + " of kernel " + kernel + " is " + describe(arguments[i]),
            "it takes " + this);
      }
    }
  }

  private static String describe(@Nullable Object argument) {
    return switch (argument) {
      case null -> "null";
      case DeviceBuffer ignored -> "a buffer";
      case KernelArgument own -> own.describe();
      case MemorySegment segment -> "a segment of " + segment.byteSize() + " bytes";
      default -> argument.getClass().getName() + " " + argument;
    };
  }

  /** The parameters, for messages. */
  @Override
  public String toString() {
    return parameters.stream().map(Parameter::toString).collect(Collectors.joining(", ", "(", ")"));
  }
}

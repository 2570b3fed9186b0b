package io.nccl4j.cli.options;

import io.nccl4j.InvalidArgumentException;
import io.nccl4j.bench.machine.ByteSize;
import picocli.CommandLine.ITypeConverter;
import picocli.CommandLine.TypeConversionException;

/** Reads sizes with suffixes. */
public final class SizeConverter implements ITypeConverter<Long> {
  @Override
  public Long convert(String text) {
    try {
      return ByteSize.parse(text);
    } catch (InvalidArgumentException e) {
      throw (TypeConversionException) new TypeConversionException(e.getMessage()).initCause(e);
    }
  }
}

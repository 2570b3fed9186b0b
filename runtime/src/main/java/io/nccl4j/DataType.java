package io.nccl4j;

import java.util.Locale;

/**
 * The element types of NCCL. The ordinal of each constant equals NCCL's {@code ncclDataType_t}
 * code.
 *
 * <p>Elements are stored in the machine's byte order (little-endian on every supported platform).
 */
public enum DataType {
  /** Signed 8-bit integer. */
  INT8("int8", 1, Family.SIGNED),
  /** Unsigned 8-bit integer. */
  UINT8("uint8", 1, Family.UNSIGNED),
  /** Signed 32-bit integer. */
  INT32("int32", 4, Family.SIGNED),
  /** Unsigned 32-bit integer. */
  UINT32("uint32", 4, Family.UNSIGNED),
  /** Signed 64-bit integer. */
  INT64("int64", 8, Family.SIGNED),
  /** Unsigned 64-bit integer. */
  UINT64("uint64", 8, Family.UNSIGNED),
  /** IEEE 754 binary16 ("half"): 5 exponent bits, 10 fraction bits. */
  FLOAT16("half", 2, Family.FLOATING),
  /** IEEE 754 binary32. */
  FLOAT32("float", 4, Family.FLOATING),
  /** IEEE 754 binary64. */
  FLOAT64("double", 8, Family.FLOATING),
  /** bfloat16: the upper half of a binary32, 8 exponent bits, 7 fraction bits. */
  BFLOAT16("bfloat16", 2, Family.FLOATING),
  /** OCP 8-bit float E4M3: largest finite value 448, no infinities, one NaN pattern per sign. */
  FLOAT8_E4M3("f8e4m3", 1, Family.FLOATING),
  /** OCP 8-bit float E5M2: largest finite value 57344, IEEE-like infinities and NaNs. */
  FLOAT8_E5M2("f8e5m2", 1, Family.FLOATING);

  private enum Family {
    SIGNED,
    UNSIGNED,
    FLOATING
  }

  private final String label;
  private final int byteSize;
  private final Family family;

  DataType(String label, int byteSize, Family family) {
    this.label = label;
    this.byteSize = byteSize;
    this.family = family;
  }

  /** The name nccl-tests uses for this type, for example {@code float} or {@code f8e4m3}. */
  public String label() {
    return label;
  }

  /** Size of one element in bytes: 1, 2, 4 or 8. */
  public int byteSize() {
    return byteSize;
  }

  /**
   * Size of {@code count} elements in bytes.
   *
   * @throws InvalidArgumentException if {@code count} is negative or the size exceeds
   *     2<sup>63</sup>−1 bytes
   */
  public long byteSize(long count) {
    if (count < 0 || count > Long.MAX_VALUE / byteSize) {
      throw new InvalidArgumentException(
          "a buffer cannot have " + count + " elements of " + label, "pass a count of 0 or more");
    }
    return count * byteSize;
  }

  /** Whether the elements are floating-point numbers of any width. */
  public boolean isFloatingPoint() {
    return family == Family.FLOATING;
  }

  /** Whether the elements are signed integers. */
  public boolean isSignedInteger() {
    return family == Family.SIGNED;
  }

  /** Whether the elements are unsigned integers. */
  public boolean isUnsignedInteger() {
    return family == Family.UNSIGNED;
  }

  /**
   * The type with the given nccl-tests name ({@code float}, {@code half}, {@code int8}, …), or with
   * the name of its constant in letters of either case ({@code float32}, {@code FLOAT16}).
   *
   * @throws InvalidArgumentException if no type has this name; the message lists all names
   */
  public static DataType ofLabel(String label) {
    StringBuilder known = new StringBuilder();
    for (DataType type : values()) {
      if (type.label.equals(label) || type.name().equalsIgnoreCase(label)) {
        return type;
      }
      known.append(known.isEmpty() ? "" : ", ").append(type.label);
      String constant = type.name().toLowerCase(Locale.ROOT);
      known.append(constant.equals(type.label) ? "" : " or " + constant);
    }
    throw new InvalidArgumentException("unknown data type '" + label + "'", "use one of: " + known);
  }
}

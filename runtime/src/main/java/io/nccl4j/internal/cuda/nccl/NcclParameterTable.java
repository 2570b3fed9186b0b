package io.nccl4j.internal.cuda.nccl;

import io.nccl4j.bindings.MemoryAccess;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.internal.cuda.driver.Driver;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;

/** The parameters that NCCL lets one read. */
public final class NcclParameterTable {
  private NcclParameterTable() {}

  public static List<String> keys() {
    Features.PARAMETERS.require();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment table = arena.allocate(ValueLayout.ADDRESS);
      MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
      NcclResults.check(
          Nccl.ncclParamGetAllParameterKeys(table, length), "ncclParamGetAllParameterKeys");
      int count = length.get(ValueLayout.JAVA_INT, 0);
      List<String> keys = new ArrayList<>();
      if (count > 0) {
        // It is this thread's until its next call: copied at once.
        MemorySegment entries =
            MemoryAccess.ofAddress(
                table.get(ValueLayout.ADDRESS, 0).address(),
                count * ValueLayout.ADDRESS.byteSize());
        for (int i = 0; i < count; i++) {
          keys.add(Driver.string(entries.getAtIndex(ValueLayout.ADDRESS, i)));
        }
      }
      return List.copyOf(keys);
    }
  }

  public static Optional<String> get(String key) {
    Features.PARAMETERS.require();
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment value = arena.allocate(ValueLayout.ADDRESS);
      MemorySegment length = arena.allocate(ValueLayout.JAVA_INT);
      int result = Nccl.ncclParamGetParameter(arena.allocateFrom(key), value, length);
      MemorySegment text = value.get(ValueLayout.ADDRESS, 0);
      int bytes = length.get(ValueLayout.JAVA_INT, 0);
      if (result != NcclResults.SUCCESS || text.equals(MemorySegment.NULL)) {
        return Optional.empty();
      }
      byte[] copy = MemoryAccess.ofAddress(text.address(), bytes).toArray(ValueLayout.JAVA_BYTE);
      return Optional.of(new String(copy, StandardCharsets.UTF_8));
    }
  }
}

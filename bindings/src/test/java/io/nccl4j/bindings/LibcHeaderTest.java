package io.nccl4j.bindings;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.lang.foreign.MemoryLayout.PathElement;
import java.lang.foreign.StructLayout;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** A C compiler checks constants and layouts against the system's headers. */
class LibcHeaderTest {
  /** Where the constants are. */
  private static final List<Class<?>> HOLDERS =
      List.of(
          Libc.class,
          Memory.class,
          Descriptors.class,
          UnixSockets.class,
          Processors.class,
          Processes.class,
          RobustMutex.class,
          Errno.class);

  /** Constants of these that are not C's. */
  private static final Set<String> OWN =
      Set.of(
          "ERROR_TEXT_BYTES",
          "MAX_DLERROR_BYTES",
          "MAX_ABSTRACT_NAME_BYTES",
          "MAX_FDS_PER_MESSAGE");

  private static final Map<String, StructLayout> STRUCTS =
      Map.of(
          "pollfd", LibcLayouts.POLLFD,
          "iovec", LibcLayouts.IOVEC,
          "msghdr", LibcLayouts.MSGHDR,
          "cmsghdr", LibcLayouts.CMSGHDR,
          "statx", LibcLayouts.STATX);

  private static final String HEADERS =
      """
      #define _GNU_SOURCE
      #include <errno.h>
      #include <dlfcn.h>
      #include <fcntl.h>
      #include <linux/futex.h>
      #include <poll.h>
      #include <pthread.h>
      #include <sched.h>
      #include <signal.h>
      #include <stddef.h>
      #include <sys/eventfd.h>
      #include <sys/mman.h>
      #include <sys/socket.h>
      #include <sys/stat.h>
      #include <sys/syscall.h>
      #include <sys/uio.h>
      #include <sys/un.h>
      #include <unistd.h>
      #define SC_PAGESIZE _SC_PAGESIZE
      #define SYS_GETTID SYS_gettid
      #define HOLDS(condition) _Static_assert(condition, #condition)
      HOLDS(PTHREAD_PROCESS_SHARED == 1);
      HOLDS(PTHREAD_MUTEX_ROBUST == 1);
      HOLDS(PTHREAD_MUTEX_ERRORCHECK == 2);
      HOLDS(SCM_RIGHTS == 1);
      HOLDS(MSG_CTRUNC == 0x8 && MSG_TRUNC == 0x20);
      HOLDS(SHUT_WR == 1);
      HOLDS(_SC_PAGESIZE == 30);
      HOLDS(sizeof(pthread_mutex_t) <= 64 && _Alignof(pthread_mutex_t) <= 8);
      HOLDS(sizeof(pthread_mutexattr_t) <= 64);
      HOLDS(sizeof(off_t) == 8 && sizeof(size_t) == 8 && sizeof(nfds_t) == 8);
      HOLDS(sizeof(pid_t) == 4 && sizeof(uid_t) == 4 && sizeof(socklen_t) == 4);
      HOLDS(sizeof(struct sockaddr_un) == 110 && offsetof(struct sockaddr_un, sun_path) == 2);
      HOLDS(sizeof(struct ucred) == 12 && offsetof(struct ucred, uid) == 4);
      HOLDS(CMSG_LEN(12) == 28);
      """;

  @TempDir Path directory;

  @Test
  void constantsAndLayoutsAreTheHeaders() throws Exception {
    LibcConditions.requireLibc();
    assumeTrue(hasCompiler(), "skipped: no C compiler named cc");
    StringBuilder source = new StringBuilder(HEADERS);
    int constants = 0;
    for (Class<?> holder : HOLDERS) {
      constants += appendConstants(source, holder);
    }
    assertTrue(constants > 80, constants + " constants");
    STRUCTS.forEach((name, layout) -> appendStruct(source, name, layout));
    Path file = Files.writeString(directory.resolve("headers.c"), source);
    Process compiler =
        new ProcessBuilder("cc", "-std=gnu11", "-fsyntax-only", file.toString())
            .redirectErrorStream(true)
            .start();
    String output = new String(compiler.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    assertEquals(0, compiler.waitFor(), output);
  }

  @Test
  void errorNamesAreThoseOfTheConstants() throws Exception {
    for (Field field : Errno.class.getDeclaredFields()) {
      assertEquals(field.getName(), Errno.name(field.getInt(null)));
    }
    assertEquals("errno 4095", Errno.name(4095));
  }

  private static int appendConstants(StringBuilder source, Class<?> holder) throws Exception {
    int count = 0;
    for (Field field : holder.getDeclaredFields()) {
      boolean constant =
          Modifier.isStatic(field.getModifiers())
              && (field.getType() == int.class || field.getName().startsWith("SYS_"));
      if (constant && !OWN.contains(field.getName())) {
        field.setAccessible(true);
        // Some are newer than the headers may be; the functions of pthread.h use enumerations.
        source.append(
            "#ifdef %1$s%nHOLDS(%1$s == %2$dL);%n#endif%n"
                .formatted(field.getName(), ((Number) field.get(null)).longValue()));
        count++;
      }
    }
    return count;
  }

  private static void appendStruct(StringBuilder source, String name, StructLayout layout) {
    source.append("HOLDS(sizeof(struct %s) == %d);%n".formatted(name, layout.byteSize()));
    for (var member : layout.memberLayouts()) {
      String field = member.name().orElse("");
      if (!field.isEmpty() && !Set.of("times", "later").contains(field)) {
        long offset = layout.byteOffset(PathElement.groupElement(field));
        source.append("HOLDS(offsetof(struct %s, %s) == %d);%n".formatted(name, field, offset));
        source.append(
            "HOLDS(sizeof(((struct %s *) 0)->%s) == %d);%n"
                .formatted(name, field, member.byteSize()));
      }
    }
  }

  static boolean hasCompiler() throws InterruptedException {
    try {
      return new ProcessBuilder("cc", "--version")
              .redirectErrorStream(true)
              .redirectOutput(ProcessBuilder.Redirect.DISCARD)
              .start()
              .waitFor()
          == 0;
    } catch (IOException e) {
      return false;
    }
  }
}

package io.nccl4j.bindings;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;

/**
 * The functions of libucp (UCX) that are used, from version 1.13 on. Loaded by the first call.
 *
 * <p>Pointers are passed as {@code long}, so that calls allocate nothing. {@code ucs_status_t} is
 * one byte: bound as an {@code int}, its upper bytes would be noise.
 */
@SuppressWarnings("restricted") // to call a library, which is what this class is for
final class UcpLibrary {
  /** Names the library's file, where the loader does not find it. */
  static final String VARIABLE = "NCCL4J_UCX_LIBRARY";

  private static final String FILE = "libucp.so.0";

  private static final SymbolLookup LIBRARY = load();

  // void ucp_get_version(unsigned *major, unsigned *minor, unsigned *release)
  static final MethodHandle GET_VERSION = action("ucp_get_version", ADDRESS, ADDRESS, ADDRESS);
  // ucs_status_t ucp_config_read(const char *env_prefix, const char *filename, ucp_config_t **)
  static final MethodHandle CONFIG_READ = status("ucp_config_read", ADDRESS, ADDRESS, ADDRESS);
  // ucs_status_t ucp_config_modify(ucp_config_t *config, const char *name, const char *value)
  static final MethodHandle CONFIG_MODIFY =
      status("ucp_config_modify", JAVA_LONG, ADDRESS, ADDRESS);
  // void ucp_config_release(ucp_config_t *config)
  static final MethodHandle CONFIG_RELEASE = action("ucp_config_release", JAVA_LONG);
  // ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t *params,
  //     const ucp_config_t *config, ucp_context_h *context)
  static final MethodHandle INIT =
      status("ucp_init_version", JAVA_INT, JAVA_INT, ADDRESS, JAVA_LONG, ADDRESS);
  // void ucp_cleanup(ucp_context_h context)
  static final MethodHandle CLEANUP = action("ucp_cleanup", JAVA_LONG);
  // ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t *params,
  //     ucp_worker_h *worker)
  static final MethodHandle WORKER_CREATE =
      status("ucp_worker_create", JAVA_LONG, ADDRESS, ADDRESS);
  // void ucp_worker_destroy(ucp_worker_h worker)
  static final MethodHandle WORKER_DESTROY = action("ucp_worker_destroy", JAVA_LONG);
  // ucs_status_t ucp_worker_get_address(ucp_worker_h worker, ucp_address_t **address,
  //     size_t *length)
  static final MethodHandle GET_ADDRESS =
      status("ucp_worker_get_address", JAVA_LONG, ADDRESS, ADDRESS);
  // void ucp_worker_release_address(ucp_worker_h worker, ucp_address_t *address)
  static final MethodHandle RELEASE_ADDRESS =
      action("ucp_worker_release_address", JAVA_LONG, JAVA_LONG);
  // ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker,
  //     const ucp_am_handler_param_t *param)
  static final MethodHandle SET_HANDLER =
      status("ucp_worker_set_am_recv_handler", JAVA_LONG, ADDRESS);
  // unsigned ucp_worker_progress(ucp_worker_h worker)
  static final MethodHandle PROGRESS =
      handle("ucp_worker_progress", FunctionDescriptor.of(JAVA_INT, JAVA_LONG));
  // ucs_status_t ucp_ep_create(ucp_worker_h worker, const ucp_ep_params_t *params, ucp_ep_h *ep)
  static final MethodHandle EP_CREATE = status("ucp_ep_create", JAVA_LONG, ADDRESS, ADDRESS);
  // ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t *param)
  static final MethodHandle EP_CLOSE = request("ucp_ep_close_nbx", JAVA_LONG, JAVA_LONG);
  // ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void *header,
  //     size_t header_length, const void *buffer, size_t count, const ucp_request_param_t *param)
  static final MethodHandle SEND =
      request(
          "ucp_am_send_nbx",
          JAVA_LONG,
          JAVA_INT,
          JAVA_LONG,
          JAVA_LONG,
          JAVA_LONG,
          JAVA_LONG,
          JAVA_LONG);
  // ucs_status_ptr_t ucp_am_recv_data_nbx(ucp_worker_h worker, void *data_desc, void *buffer,
  //     size_t count, const ucp_request_param_t *param)
  static final MethodHandle RECEIVE =
      request("ucp_am_recv_data_nbx", JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG, JAVA_LONG);
  // void ucp_am_data_release(ucp_worker_h worker, void *data)
  static final MethodHandle DATA_RELEASE = action("ucp_am_data_release", JAVA_LONG, JAVA_LONG);
  // ucs_status_t ucp_request_check_status(void *request)
  static final MethodHandle CHECK_STATUS =
      handle(
          "ucp_request_check_status",
          FunctionDescriptor.of(JAVA_BYTE, JAVA_LONG),
          Linker.Option.critical(false));
  // void ucp_request_free(void *request)
  static final MethodHandle REQUEST_FREE = action("ucp_request_free", JAVA_LONG);
  // const char *ucs_status_string(ucs_status_t status)
  static final MethodHandle STATUS_STRING =
      handle("ucs_status_string", FunctionDescriptor.of(JAVA_LONG, JAVA_BYTE));

  private UcpLibrary() {}

  private static SymbolLookup load() {
    prepare();
    String file = System.getenv(VARIABLE);
    return SymbolLookup.libraryLookup(file == null ? FILE : file, Arena.global());
  }

  /**
   * Settings that the library reads while it is loaded. What the user has set stays.
   *
   * <ul>
   *   <li>Its signal handlers would end the process at the first implicit null check of compiled
   *       Java code, which HotSpot makes by SIGSEGV.
   *   <li>It would replace mmap and munmap in the whole process, for memory of GPUs.
   *   <li>It would write of failures to the program's output; they are reported by exceptions.
   *   <li>It would wait in connect(2) although nothing here may wait, and notice a dead machine
   *       after many minutes.
   * </ul>
   */
  private static void prepare() {
    String[][] settings = {
      {"UCX_ERROR_SIGNALS", ""},
      {"UCX_MEM_EVENTS", "n"},
      {"UCX_LOG_LEVEL", "fatal"},
      {"UCX_WARN_UNUSED_ENV_VARS", "n"},
      {"UCX_TCP_CONN_NB", "y"},
      {"UCX_TCP_KEEPIDLE", "1s"},
      {"UCX_TCP_KEEPINTVL", "1s"},
      {"UCX_TCP_KEEPCNT", "2"},
    };
    Linker linker = Linker.nativeLinker();
    // int setenv(const char *name, const char *value, int overwrite)
    MethodHandle setenv =
        linker.downcallHandle(
            linker.defaultLookup().find("setenv").orElseThrow(),
            FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, JAVA_INT));
    try (Arena arena = Arena.ofConfined()) {
      for (String[] setting : settings) {
        MemorySegment name = arena.allocateFrom(setting[0]);
        int ignored = (int) setenv.invokeExact(name, arena.allocateFrom(setting[1]), 0);
      }
    } catch (Throwable e) {
      throw Libc.unchecked(e);
    }
  }

  private static MethodHandle status(String name, MemoryLayout... arguments) {
    return handle(name, FunctionDescriptor.of(JAVA_BYTE, arguments));
  }

  private static MethodHandle request(String name, MemoryLayout... arguments) {
    return handle(name, FunctionDescriptor.of(JAVA_LONG, arguments));
  }

  private static MethodHandle action(String name, MemoryLayout... arguments) {
    return handle(name, FunctionDescriptor.ofVoid(arguments));
  }

  private static MethodHandle handle(
      String name, FunctionDescriptor type, Linker.Option... options) {
    return Linker.nativeLinker()
        .downcallHandle(
            LIBRARY.find(name).orElseThrow(() -> new IllegalArgumentException("no " + name)),
            type,
            options);
  }
}

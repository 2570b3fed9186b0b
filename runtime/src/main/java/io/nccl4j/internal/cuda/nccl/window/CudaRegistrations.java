package io.nccl4j.internal.cuda.nccl.window;

import io.nccl4j.DataType;
import io.nccl4j.Device;
import io.nccl4j.DeviceBuffer;
import io.nccl4j.InvalidArgumentException;
import io.nccl4j.InvalidUsageException;
import io.nccl4j.bindings.nccl.Nccl;
import io.nccl4j.bindings.nccl.ncclTeam;
import io.nccl4j.cuda.NcclCommunicator;
import io.nccl4j.cuda.NcclCommunicator.Registration;
import io.nccl4j.cuda.NcclCommunicator.Window;
import io.nccl4j.cuda.NcclDeviceCommunicator;
import io.nccl4j.cuda.NcclDeviceRequirements;
import io.nccl4j.internal.cuda.driver.CudaLibraries;
import io.nccl4j.internal.cuda.memory.CudaBuffer;
import io.nccl4j.internal.cuda.memory.CudaHeap;
import io.nccl4j.internal.cuda.memory.CudaPool;
import io.nccl4j.internal.cuda.nccl.CudaCalls;
import io.nccl4j.internal.cuda.nccl.CudaHealth;
import io.nccl4j.internal.cuda.nccl.Features;
import io.nccl4j.internal.cuda.nccl.NcclQueries;
import io.nccl4j.internal.cuda.nccl.NcclResults;
import io.nccl4j.internal.spi.MemoryBook;
import io.nccl4j.memory.MemoryPool;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/**
 * The buffers of a communicator that NCCL knows of, what one-sided operations may touch, and what
 * kernels communicate with.
 */
public final class CudaRegistrations {
  /** The communicator, which one thread at a time may use. */
  public interface Owner extends NcclCommunicator {
    /**
     * Keeps other threads out until {@link #leave()}.
     *
     * @throws InvalidUsageException if another thread is inside
     */
    void enterAlone(String what);

    /** The same; throws, too, if operations are not accepted. */
    void enterFor(String what);

    /** Lets other threads in again. */
    void leave();

    /** Throws if a group is open on this thread or operations are unfinished. */
    void requireIdle(String what);
  }

  private static final int OLDEST_DRIVER_FOR_ONE_SIDED = 12050;

  private final Owner owner;
  private final CudaCalls calls;
  private final CudaHealth health;
  private final MemoryBook.Account account;
  private final Set<CudaRegistered> registered = ConcurrentHashMap.newKeySet();
  private final Set<CudaDeviceCommunicator> devices = ConcurrentHashMap.newKeySet();
  private boolean hostRma;

  /**
   * The registrations of a communicator.
   *
   * @param account where the memory is booked
   */
  public CudaRegistrations(
      Owner owner, CudaCalls calls, CudaHealth health, MemoryBook.Account account) {
    this.owner = owner;
    this.calls = calls;
    this.health = health;
    this.account = account;
  }

  Owner owner() {
    return owner;
  }

  CudaCalls calls() {
    return calls;
  }

  MemoryBook.Account account() {
    return account;
  }

  /** Whether NCCL has let go of them all. */
  boolean haveEnded() {
    return health.failure() != null;
  }

  /** Throws the failure after which NCCL has let go of them all, if there was one. */
  void requireAlive() {
    health.throwIfFailed();
  }

  void add(CudaRegistered one) {
    registered.add(one);
  }

  void remove(CudaRegistered one) {
    registered.remove(one);
  }

  void remove(CudaDeviceCommunicator one) {
    devices.remove(one);
  }

  /**
   * Closes one of them.
   *
   * @throws InvalidUsageException if something uses it, or the communicator
   */
  void closeAlone(String what, Object one, Runnable end) {
    owner.enterAlone(what);
    try {
      owner.requireIdle(what);
      requireUnused(what, one);
      end.run();
    } finally {
      owner.leave();
    }
  }

  private void requireUnused(String what, Object one) {
    String user = calls.rank().memory().users().userOf(one);
    if (user != null) {
      throw new InvalidUsageException(
          what + ": it is in use by " + user, "synchronize the stream first");
    }
  }

  /**
   * Throws if a kernel that has not run uses a window or device communicator: it would go on in
   * memory that NCCL takes away.
   */
  public void requireUnused() {
    String what = "close of communicator " + owner.name();
    devices.forEach(one -> requireUnused(what + " with an open device communicator", one));
    registered.forEach(one -> requireUnused(what + " with an open window", one));
  }

  /** Ends all; nothing uses them any more. */
  public void end() {
    devices.forEach(CudaDeviceCommunicator::end);
    registered.forEach(CudaRegistered::end);
  }

  // ---- registering

  public Registration register(DeviceBuffer buffer) {
    Features.REGISTER.require();
    CudaBuffer own = registrable(buffer, "register");
    owner.enterFor("register");
    try {
      return CudaRegistration.create(this, own);
    } finally {
      owner.leave();
    }
  }

  public Window registerWindow(DeviceBuffer buffer, boolean symmetric, boolean strictOrdering) {
    Features.WINDOWS.require();
    CudaBuffer own = registrable(buffer, "registerWindow");
    if (own.address() % CudaHeap.ALIGNMENT != 0) {
      throw new InvalidArgumentException(
          "registerWindow: the buffer starts at 0x" + Long.toHexString(own.address()),
          "windows start at multiples of " + CudaHeap.ALIGNMENT + " bytes, as allocated buffers");
    }
    owner.enterFor("registerWindow");
    try {
      owner.requireIdle("registerWindow");
      return CudaWindow.create(this, own, symmetric, strictOrdering);
    } finally {
      owner.leave();
    }
  }

  public List<Registration> register(@Nullable MemoryPool pool) {
    return ofChunks(pool, "register", CudaRegistration.class, this::register);
  }

  public List<Window> registerWindows(
      @Nullable MemoryPool pool, boolean symmetric, boolean strictOrdering) {
    return ofChunks(
        pool,
        "registerWindows",
        CudaWindow.class,
        chunk -> registerWindow(chunk, symmetric, strictOrdering));
  }

  /** One registration of each chunk: the one there is, or a new one. */
  private <R> List<R> ofChunks(
      @Nullable MemoryPool pool,
      String call,
      Class<? extends R> kind,
      Function<CudaBuffer, R> registration) {
    List<R> all = new ArrayList<>();
    for (CudaBuffer chunk : CudaPool.require(pool, calls.rank().memory(), call).buffers()) {
      R known = null;
      for (CudaRegistered one : registered) {
        if (one.buffer() == chunk && kind.isInstance(one) && !one.isClosed()) {
          known = kind.cast(one);
        }
      }
      all.add(known == null ? registration.apply(chunk) : known);
    }
    return List.copyOf(all);
  }

  private CudaBuffer registrable(@Nullable DeviceBuffer buffer, String what) {
    Device device = owner.device();
    if (!(buffer instanceof CudaBuffer own) || own.device() != device || own.byteSize() == 0) {
      throw new InvalidArgumentException(
          what + ": the buffer is null, empty or not on " + device,
          "allocate it on communicator.device()");
    }
    own.requireOpen();
    return own;
  }

  // ---- kernels that communicate

  public NcclDeviceCommunicator createDeviceCommunicator(
      @Nullable NcclDeviceRequirements requirements) {
    Features.DEVICE_API.require();
    if (requirements == null) {
      throw new InvalidArgumentException(
          "createDeviceCommunicator: the requirements are null", "pass requirements");
    }
    DeviceRequirements.requireKnown(requirements);
    owner.enterFor("createDeviceCommunicator");
    try {
      owner.requireIdle("createDeviceCommunicator");
      DeviceRequirements.requireSupported(
          requirements, NcclQueries.properties(calls), owner.name());
      CudaDeviceCommunicator created = CudaDeviceCommunicator.create(this, requirements);
      devices.add(created);
      return created;
    } finally {
      owner.leave();
    }
  }

  /** Number of ranks whose memory this rank reaches. */
  int lsaSize() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment[] team = new MemorySegment[1];
      calls.query(
          "team of ranks that share memory",
          comm -> {
            team[0] = Nccl.ncclTeamLsa(arena, comm);
            return NcclResults.SUCCESS;
          });
      return ncclTeam.nRanks(team[0]);
    }
  }

  /** A window of this communicator that can be used; throws otherwise. */
  CudaWindow requireWindow(@Nullable Window window, String call) {
    if (!(window instanceof CudaWindow own) || own.all() != this) {
      throw new InvalidArgumentException(
          call + ": the window is not of communicator " + owner.name(),
          "register it with this one");
    }
    own.requireUsable();
    return own;
  }

  // ---- one-sided operations

  /** Throws what NCCL would refuse with an error that ends the communicator. */
  public void requireOneSided(String what) {
    Features.ONE_SIDED.require();
    if (CudaLibraries.driverVersion() < OLDEST_DRIVER_FOR_ONE_SIDED) {
      throw new InvalidUsageException(
          what
              + ": the driver supports CUDA "
              + CudaLibraries.cudaText(CudaLibraries.driverVersion()),
          "one-sided operations need a driver of CUDA 12.5 or newer");
    }
    if (!hostRma) {
      hostRma = owner.properties().hostRmaSupport();
    }
    if (!hostRma) {
      throw new InvalidUsageException(
          what + ": communicator " + owner.name() + " has no one-sided operations",
          "see NcclProperties.hostRmaSupport(): they need symmetric memory and CUDA 12.5");
    }
  }

  /**
   * NCCL's handle of the window, if elements of the buffer can be put into it; throws otherwise.
   */
  public long requireTarget(
      @Nullable DeviceBuffer buffer,
      long count,
      @Nullable DataType type,
      @Nullable Window window,
      long byteOffset) {
    CudaWindow own = requireWindow(window, "putSignal");
    if (byteOffset < 0) {
      throw new InvalidArgumentException(
          "putSignal: the offset is " + byteOffset + " bytes", "pass 0 or more");
    }
    requireInWindow(buffer, count, type);
    return own.handle().address();
  }

  private void requireInWindow(@Nullable DeviceBuffer buffer, long count, @Nullable DataType type) {
    if (buffer == null || type == null || count < 0) {
      // The common checks say it.
      return;
    }
    for (CudaRegistered one : registered) {
      if (one instanceof CudaWindow window
          && window.covers(buffer.address(), count * type.byteSize())) {
        return;
      }
    }
    throw new InvalidArgumentException(
        "putSignal: the send buffer does not lie in a symmetric window of communicator "
            + owner.name(),
        "register it with registerWindow(buffer, true, …), on all ranks");
  }
}

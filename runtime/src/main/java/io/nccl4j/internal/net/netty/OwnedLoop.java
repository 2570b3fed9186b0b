package io.nccl4j.internal.net.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelPromise;
import io.netty.channel.DefaultChannelPromise;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoEventLoopGroup;
import io.netty.channel.IoHandle;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.IoRegistration;
import io.netty.util.concurrent.AbstractScheduledEventExecutor;
import io.netty.util.concurrent.DefaultPromise;
import io.netty.util.concurrent.Future;
import io.netty.util.concurrent.GlobalEventExecutor;
import io.netty.util.concurrent.Promise;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import org.jspecify.annotations.Nullable;

/**
 * An event loop without a thread: it runs on the thread of the port's owner, whoever that is now.
 * Netty's own loop of this kind stays with one thread for ever.
 */
final class OwnedLoop extends AbstractScheduledEventExecutor implements IoEventLoop {
  private static final IoHandlerContext NEVER_WAIT =
      new IoHandlerContext() {
        @Override
        public boolean canBlock() {
          return false;
        }

        @Override
        public long delayNanos(long currentTimeNanos) {
          return 0;
        }

        @Override
        public long deadlineNanos() {
          return -1;
        }
      };

  private final Queue<Runnable> tasks = new ConcurrentLinkedQueue<>();
  private final Promise<?> terminated = new DefaultPromise<Void>(GlobalEventExecutor.INSTANCE);
  private final IoHandler handler;
  private volatile @Nullable Thread owner = Thread.currentThread();
  private boolean isShutDown;

  @SuppressWarnings("this-escape") // The handler only keeps it.
  OwnedLoop(IoHandlerFactory handlers) {
    handler = handlers.newHandler(this);
    handler.initialize();
  }

  /** From now on the calling thread is the one that runs it. */
  void own() {
    Thread me = Thread.currentThread();
    if (owner != me) {
      owner = me;
    }
  }

  /** Does what there is to do. */
  void run() {
    handler.run(NEVER_WAIT);
    runTasks();
  }

  /** Whether tasks are waiting, apart from events of channels. */
  boolean hasTasks() {
    return !tasks.isEmpty();
  }

  private void runTasks() {
    Runnable task = tasks.poll();
    while (task != null) {
      safeExecute(task);
      task = tasks.poll();
    }
  }

  /** Makes a channel one of this loop. */
  ChannelFuture adopt(Channel channel) {
    ChannelPromise registered = new DefaultChannelPromise(channel, this);
    channel.unsafe().register(this, registered);
    return registered;
  }

  /** Closes what its channels waited with; they are closed before. */
  void end() {
    if (!isShutDown) {
      runTasks();
      isShutDown = true;
      handler.prepareToDestroy();
      handler.destroy();
      runTasks();
      terminated.setSuccess(null);
    }
  }

  @Override
  public boolean inEventLoop(Thread thread) {
    return owner == thread;
  }

  @Override
  public void execute(Runnable task) {
    if (isShutDown) {
      throw new RejectedExecutionException("the port is closed");
    }
    tasks.add(task);
  }

  @Override
  public IoEventLoop next() {
    return this;
  }

  @Override
  public @Nullable IoEventLoopGroup parent() {
    return null;
  }

  @Override
  public Future<IoRegistration> register(IoHandle handle) {
    Promise<IoRegistration> registered = newPromise();
    try {
      registered.setSuccess(handler.register(handle));
    } catch (Exception e) {
      registered.setFailure(e);
    }
    return registered;
  }

  @Override
  public boolean isCompatible(Class<? extends IoHandle> type) {
    return handler.isCompatible(type);
  }

  @Override
  public boolean isIoType(Class<? extends IoHandler> type) {
    return handler.getClass() == type;
  }

  @Override
  @Deprecated
  public ChannelFuture register(Channel channel) {
    return adopt(channel);
  }

  @Override
  @Deprecated
  public ChannelFuture register(ChannelPromise promise) {
    promise.channel().unsafe().register(this, promise);
    return promise;
  }

  @Override
  @Deprecated
  public ChannelFuture register(Channel channel, ChannelPromise promise) {
    channel.unsafe().register(this, promise);
    return promise;
  }

  @Override
  public Future<?> shutdownGracefully(long quietPeriod, long timeout, TimeUnit unit) {
    throw new UnsupportedOperationException("the port ends its loop");
  }

  @Override
  @Deprecated
  public void shutdown() {
    throw new UnsupportedOperationException("the port ends its loop");
  }

  @Override
  public Future<?> terminationFuture() {
    return terminated;
  }

  @Override
  public boolean isShuttingDown() {
    return isShutDown;
  }

  @Override
  public boolean isShutdown() {
    return isShutDown;
  }

  @Override
  public boolean isTerminated() {
    return isShutDown;
  }

  @Override
  public boolean awaitTermination(long timeout, TimeUnit unit) {
    return isShutDown;
  }
}

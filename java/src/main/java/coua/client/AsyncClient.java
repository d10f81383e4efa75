package coua.client;

import java.util.Collection;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/**
 * The operations of {@link CouaClient} as futures, which fail with {@link CouaException}. A thread for each connection
 * makes them; up to 16,384 wait for one, and further ones fail as not sent. A future that is cancelled does not stop its
 * operation.
 */
public final class AsyncClient {
  private static final int WAITING_MAX = 16_384;
  private static final AtomicInteger CLIENTS = new AtomicInteger();

  private final CouaClient client;
  private final ThreadPoolExecutor threads;

  AsyncClient(CouaClient client, int connections) {
    this.client = client;
    String name = "coua-client-" + CLIENTS.incrementAndGet() + "-";
    threads =
        new ThreadPoolExecutor(
            connections,
            connections,
            30,
            TimeUnit.SECONDS,
            new LinkedBlockingQueue<>(WAITING_MAX),
            Thread.ofPlatform().daemon().name(name, 0).factory());
    threads.allowCoreThreadTimeOut(true);
  }

  /** Lets what was asked come to its end, and takes nothing more. */
  void close() {
    threads.shutdown();
    boolean isInterrupted = false;
    while (true) {
      try {
        if (threads.awaitTermination(1, TimeUnit.SECONDS)) {
          break;
        }
      } catch (InterruptedException interrupted) {
        // What waits is given up; what is under way ends within its time.
        isInterrupted = true;
        threads.getQueue().clear();
      }
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private <T> CompletableFuture<T> run(Supplier<T> operation) {
    var future = new CompletableFuture<T>();
    try {
      threads.execute(
          () -> {
            try {
              future.complete(operation.get());
            } catch (Throwable cause) {
              future.completeExceptionally(cause);
            }
          });
    } catch (RejectedExecutionException full) {
      String why = threads.isShutdown() ? "the client is closed" : "too many operations wait";
      future.completeExceptionally(new CouaException(CouaException.Kind.NOT_SENT, why));
    }
    return future;
  }

  private CompletableFuture<Void> run(Runnable operation) {
    return run(
        () -> {
          operation.run();
          return null;
        });
  }

  /** See {@link CouaClient#get(String)}. */
  public CompletableFuture<Object> get(String key) {
    return run(() -> client.get(key));
  }

  /** See {@link CouaClient#get(String, Transcoder)}. */
  public <T> CompletableFuture<T> get(String key, Transcoder<T> transcoder) {
    return run(() -> client.get(key, transcoder));
  }

  /** See {@link CouaClient#gets(String)}. */
  public CompletableFuture<CasValue<Object>> gets(String key) {
    return run(() -> client.gets(key));
  }

  /** See {@link CouaClient#getAndTouch(String, int)}. */
  public CompletableFuture<CasValue<Object>> getAndTouch(String key, int expiry) {
    return run(() -> client.getAndTouch(key, expiry));
  }

  /** See {@link CouaClient#getBulk(Collection)}. */
  public CompletableFuture<Map<String, Object>> getBulk(Collection<String> keys) {
    return run(() -> client.getBulk(keys));
  }

  /** See {@link CouaClient#set(String, int, Object)}. */
  public CompletableFuture<Void> set(String key, int expiry, Object value) {
    return run(() -> client.set(key, expiry, value));
  }

  /** See {@link CouaClient#add}. */
  public CompletableFuture<Boolean> add(String key, int expiry, Object value) {
    return run(() -> client.add(key, expiry, value));
  }

  /** See {@link CouaClient#replace}. */
  public CompletableFuture<Boolean> replace(String key, int expiry, Object value) {
    return run(() -> client.replace(key, expiry, value));
  }

  /** See {@link CouaClient#append}. */
  public CompletableFuture<Boolean> append(String key, Object value) {
    return run(() -> client.append(key, value));
  }

  /** See {@link CouaClient#prepend}. */
  public CompletableFuture<Boolean> prepend(String key, Object value) {
    return run(() -> client.prepend(key, value));
  }

  /** See {@link CouaClient#cas}. */
  public CompletableFuture<CasResponse> cas(String key, long cas, int expiry, Object value) {
    return run(() -> client.cas(key, cas, expiry, value));
  }

  /** See {@link CouaClient#delete}. */
  public CompletableFuture<Boolean> delete(String key) {
    return run(() -> client.delete(key));
  }

  /** See {@link CouaClient#touch}. */
  public CompletableFuture<Boolean> touch(String key, int expiry) {
    return run(() -> client.touch(key, expiry));
  }

  /** See {@link CouaClient#incr(String, long)}. */
  public CompletableFuture<Long> incr(String key, long by) {
    return run(() -> client.incr(key, by));
  }

  /** See {@link CouaClient#incr(String, long, long, int)}. */
  public CompletableFuture<Long> incr(String key, long by, long initial, int expiry) {
    return run(() -> client.incr(key, by, initial, expiry));
  }

  /** See {@link CouaClient#decr(String, long)}. */
  public CompletableFuture<Long> decr(String key, long by) {
    return run(() -> client.decr(key, by));
  }

  /** See {@link CouaClient#decr(String, long, long, int)}. */
  public CompletableFuture<Long> decr(String key, long by, long initial, int expiry) {
    return run(() -> client.decr(key, by, initial, expiry));
  }

  /** See {@link CouaClient#flush()}. */
  public CompletableFuture<Void> flush() {
    return run((Runnable) client::flush);
  }
}

package coua.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The operations of {@link CouaClient} as futures, which fail with {@link CouaException}. One thread sends and receives for
 * all of them: requests that come while it is busy leave together. Up to 16,384 may be under way; further ones fail as not
 * sent. A future that is cancelled does not stop its operation.
 *
 * <p>What depends on a future is executed by that thread, as are transcoders: give long work to another one, as
 * {@code thenApplyAsync} does. To wait there for another operation of this client throws {@link IllegalStateException}.
 */
public final class AsyncClient {
  private static final int WAITING_MAX = 16_384;
  private static final int BATCH = 128;
  private static final int WAIT_MS = 60_000;
  private static final AtomicInteger CLIENTS = new AtomicInteger();

  private static final int SET = 0;
  private static final int ADD = 1;
  private static final int REPLACE = 2;
  private static final int APPEND = 3;
  private static final int PREPEND = 4;
  private static final int CAS = 5;
  private static final int GET = 6;
  private static final int GET_AND_TOUCH = 7;
  private static final int GET_MANY = 8;
  private static final int DELETE = 9;
  private static final int TOUCH = 10;
  private static final int INCREMENT = 11;
  private static final int DECREMENT = 12;
  private static final int FLUSH_ALL = 13;

  /** Makes the result of an operation out of its completion. */
  private interface Reader<T> {
    T read(MemorySegment completion);
  }

  private final Transcoder<Object> transcoder;
  private final MemorySegment queue;
  private final Thread poller;

  /** What is under way, by its number, and the numbers that are free. */
  private final Answer<?>[] waiting = new Answer<?>[WAITING_MAX];

  private final int[] free = new int[WAITING_MAX];
  private int freeCount = WAITING_MAX;

  /** Threads that use the queue to submit something. */
  private int submitting;

  /** No operation begins any more. */
  private boolean isClosed;

  /** The thread ends, whatever is under way. */
  private volatile boolean isOver;

  AsyncClient(String servers, String options, Transcoder<Object> transcoder, long observer) {
    this.transcoder = transcoder;
    for (int i = 0; i < WAITING_MAX; i++) {
      free[i] = WAITING_MAX - 1 - i;
    }
    try (Scratch scratch = Scratch.take(null)) {
      MemorySegment into = scratch.number;
      int status =
          (int)
              Library.QUEUE_OPEN.invokeExact(
                  scratch.put(servers), scratch.put(options), Observers.function(observer),
                  Observers.context(observer), into, scratch.error);
      if (status < 0) {
        throw Library.Error.of(status, scratch.error);
      }
      queue = into.get(ADDRESS, 0);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
    poller = Thread.ofPlatform().daemon().name("coua-client-" + CLIENTS.incrementAndGet()).start(this::poll);
  }

  /** Lets what was asked come to its end, and takes nothing more. */
  void close() {
    boolean isInterrupted = false;
    synchronized (waiting) {
      isClosed = true;
      while (freeCount < WAITING_MAX && poller.isAlive() && Thread.currentThread() != poller && !isInterrupted) {
        try {
          waiting.wait(1000);
        } catch (InterruptedException interrupted) {
          isInterrupted = true;
        }
      }
    }
    synchronized (poller) {
      if (!isOver) {
        isOver = true;
        try {
          Library.QUEUE_WAKE.invokeExact(queue);
        } catch (Throwable cause) {
          throw Library.failed(cause);
        }
      }
    }
    while (Thread.currentThread() != poller && poller.isAlive()) {
      try {
        poller.join();
      } catch (InterruptedException interrupted) {
        isInterrupted = true;
      }
    }
    if (isInterrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Sends, receives and completes, until the client is closed. */
  private void poll() {
    try (Arena arena = Arena.ofConfined()) {
      MemorySegment completions = arena.allocate(BATCH * Library.Completion.SIZE, 8);
      MemorySegment error = arena.allocate(Library.Error.SIZE, 8);
      while (!isOver) {
        int count = (int) Library.QUEUE_WAIT.invokeExact(queue, completions, (long) BATCH, WAIT_MS, error);
        if (count < 0) {
          throw Library.Error.of(count, error);
        }
        for (int i = 0; i < count; i++) {
          complete(completions.asSlice(i * Library.Completion.SIZE, Library.Completion.SIZE));
        }
        Library.COMPLETIONS_RELEASE.invokeExact(completions, (long) count);
      }
    } catch (Throwable unexpected) {
      throw Library.failed(unexpected);
    } finally {
      end();
    }
  }

  private void complete(MemorySegment completion) {
    Answer<?> answer = taken((int) completion.get(JAVA_LONG, Library.Completion.TOKEN));
    if (answer != null) {
      answer.complete(completion);
    }
  }

  private Answer<?> taken(int token) {
    synchronized (waiting) {
      Answer<?> answer = waiting[token];
      if (answer != null) {
        waiting[token] = null;
        free[freeCount++] = token;
        if (isClosed && freeCount == WAITING_MAX) {
          waiting.notifyAll();
        }
      }
      return answer;
    }
  }

  /** Nobody waits for good for what is given up. */
  private void end() {
    synchronized (poller) {
      isOver = true;
    }
    boolean isInterrupted = false;
    synchronized (waiting) {
      isClosed = true;
      while (submitting > 0) {
        try {
          waiting.wait();
        } catch (InterruptedException interrupted) {
          isInterrupted = true;
        }
      }
    }
    try {
      Library.QUEUE_CLOSE.invokeExact(queue);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    } finally {
      for (int token = 0; token < WAITING_MAX; token++) {
        Answer<?> answer = taken(token);
        if (answer != null) {
          var kind = CouaException.Kind.OUTCOME_UNKNOWN;
          answer.completeExceptionally(new CouaException(kind, "the client is closed"));
        }
      }
      if (isInterrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** A future that is not waited for by the thread that completes it. */
  private final class Answer<T> extends CompletableFuture<T> {
    /** Null for what depends on an answer. */
    private final Reader<T> reader;

    Answer(Reader<T> reader) {
      this.reader = reader;
    }

    void complete(MemorySegment completion) {
      try {
        int status = completion.get(JAVA_INT, Library.Completion.STATUS);
        if (status < 0) {
          MemorySegment words = completion.asSlice(Library.Completion.VALUE, Library.Value.SIZE);
          byte[] bytes = Library.Value.bytes(words).toArray(java.lang.foreign.ValueLayout.JAVA_BYTE);
          String message = new String(bytes, StandardCharsets.UTF_8);
          int cause = completion.get(JAVA_INT, Library.Completion.CAUSE);
          completeExceptionally(new CouaException(status, cause, message));
        } else {
          complete(reader.read(completion));
        }
      } catch (Throwable cause) {
        completeExceptionally(cause);
      }
    }

    private void check() {
      if (Thread.currentThread() == poller && !isDone()) {
        throw new IllegalStateException("this thread completes the operation: waiting here would never end");
      }
    }

    @Override
    public <U> CompletableFuture<U> newIncompleteFuture() {
      return new Answer<>(null);
    }

    @Override
    public T get() throws InterruptedException, java.util.concurrent.ExecutionException {
      check();
      return super.get();
    }

    @Override
    public T get(long timeout, java.util.concurrent.TimeUnit unit)
        throws InterruptedException, java.util.concurrent.ExecutionException, java.util.concurrent.TimeoutException {
      check();
      return super.get(timeout, unit);
    }

    @Override
    public T join() {
      check();
      return super.join();
    }
  }

  /** Fills in what an operation needs beside its key. */
  private interface Writer {
    void write(MemorySegment request, Scratch scratch);
  }

  private <T> CompletableFuture<T> submit(int operation, String key, Writer writer, Reader<T> reader) {
    var answer = new Answer<T>(reader);
    int token;
    synchronized (waiting) {
      if (isClosed || freeCount == 0) {
        String why = isClosed ? "the client is closed" : "too many operations wait";
        answer.completeExceptionally(new CouaException(CouaException.Kind.NOT_SENT, why));
        return answer;
      }
      token = free[--freeCount];
      waiting[token] = answer;
      submitting++;
    }
    try (Scratch scratch = Scratch.take(key)) {
      MemorySegment request = scratch.request.fill((byte) 0);
      request.set(JAVA_LONG, Library.Request.TOKEN, token);
      request.set(JAVA_INT, Library.Request.OPERATION, operation);
      if (key != null) {
        request.set(ADDRESS, Library.Request.KEY, scratch.key);
        request.set(JAVA_LONG, Library.Request.KEY_LEN, scratch.keyLen);
      }
      writer.write(request, scratch);
      int status = (int) Library.QUEUE_SUBMIT.invokeExact(queue, request, scratch.error);
      if (status < 0 && taken(token) != null) {
        answer.completeExceptionally(Library.Error.of(status, scratch.error));
      }
    } catch (Throwable cause) {
      if (taken(token) != null) {
        answer.completeExceptionally(cause);
      }
    } finally {
      synchronized (waiting) {
        submitting--;
        if (isClosed) {
          waiting.notifyAll();
        }
      }
    }
    return answer;
  }

  private static int status(MemorySegment completion) {
    return completion.get(JAVA_INT, Library.Completion.STATUS);
  }

  private static MemorySegment value(MemorySegment completion) {
    return completion.asSlice(Library.Completion.VALUE, Library.Value.SIZE);
  }

  private static Writer nothing() {
    return (request, scratch) -> {};
  }

  private static Writer expiring(int expiry) {
    return (request, scratch) -> request.set(JAVA_LONG, Library.Request.EXPIRY, expiry);
  }

  private static boolean isDone(MemorySegment completion) {
    return status(completion) == Library.OK;
  }

  private static <T> CasValue<T> found(MemorySegment completion, Transcoder<T> transcoder) {
    if (status(completion) != Library.OK) {
      return null;
    }
    MemorySegment value = value(completion);
    return new CasValue<>(CouaClient.decoded(value, transcoder), Library.Value.cas(value));
  }

  private <T> CompletableFuture<T> store(
      int operation, String key, int expiry, long cas, Object value, Reader<T> reader) {
    CachedData data;
    try {
      data = transcoder.encode(value);
    } catch (RuntimeException cause) {
      return CompletableFuture.failedFuture(cause);
    }
    Writer writer =
        (request, scratch) -> {
          request.set(ADDRESS, Library.Request.VALUE, scratch.put(data.bytes()));
          request.set(JAVA_LONG, Library.Request.VALUE_LEN, data.bytes().length);
          request.set(JAVA_INT, Library.Request.FLAGS, data.flags());
          request.set(JAVA_LONG, Library.Request.EXPIRY, expiry);
          request.set(JAVA_LONG, Library.Request.NUMBER, cas);
        };
    return submit(operation, key, writer, reader);
  }

  private CompletableFuture<Long> count(int operation, String key, long by, Long initial, int expiry) {
    if (by < 0) {
      throw new IllegalArgumentException("a number is changed by 0 and above, not by " + by);
    }
    Writer writer =
        (request, scratch) -> {
          request.set(JAVA_LONG, Library.Request.NUMBER, by);
          request.set(JAVA_LONG, Library.Request.EXPIRY, expiry);
          if (initial != null) {
            request.set(ADDRESS, Library.Request.INITIAL, scratch.initially(initial));
          }
        };
    return submit(
        operation,
        key,
        writer,
        completion -> isDone(completion) ? completion.get(JAVA_LONG, Library.Completion.NUMBER) : -1L);
  }

  /** See {@link CouaClient#get(String)}. */
  public CompletableFuture<Object> get(String key) {
    return get(key, transcoder);
  }

  /** See {@link CouaClient#get(String, Transcoder)}. */
  public <T> CompletableFuture<T> get(String key, Transcoder<T> transcoder) {
    return submit(
        GET,
        key,
        nothing(),
        completion -> isDone(completion) ? CouaClient.decoded(value(completion), transcoder) : null);
  }

  /** See {@link CouaClient#gets(String)}. */
  public CompletableFuture<CasValue<Object>> gets(String key) {
    return submit(GET, key, nothing(), completion -> found(completion, transcoder));
  }

  /** See {@link CouaClient#getAndTouch(String, int)}. */
  public CompletableFuture<CasValue<Object>> getAndTouch(String key, int expiry) {
    return submit(GET_AND_TOUCH, key, expiring(expiry), completion -> found(completion, transcoder));
  }

  /** See {@link CouaClient#getBulk(Collection)}. */
  public CompletableFuture<Map<String, Object>> getBulk(Collection<String> keys) {
    return getBulk(keys, transcoder);
  }

  /** See {@link CouaClient#getBulk(Collection, Transcoder)}. */
  public <T> CompletableFuture<Map<String, T>> getBulk(Collection<String> keys, Transcoder<T> transcoder) {
    List<String> own = new ArrayList<>(keys);
    Writer writer =
        (request, scratch) -> {
          request.set(ADDRESS, Library.Request.KEYS, scratch.slices(own));
          request.set(JAVA_LONG, Library.Request.KEY_COUNT, own.size());
        };
    Reader<Map<String, T>> reader =
        completion -> {
          long count = completion.get(JAVA_LONG, Library.Completion.COUNT);
          MemorySegment values =
              completion.get(ADDRESS, Library.Completion.VALUES).reinterpret(count * Library.Value.SIZE);
          Map<String, T> found = LinkedHashMap.newLinkedHashMap((int) count);
          for (int at = 0; at < count; at++) {
            MemorySegment value = values.asSlice(at * Library.Value.SIZE, Library.Value.SIZE);
            if (Library.Value.status(value) == Library.OK) {
              found.put(own.get(at), CouaClient.decoded(value, transcoder));
            }
          }
          return found;
        };
    return submit(GET_MANY, null, writer, reader);
  }

  /** See {@link CouaClient#set(String, int, Object)}. */
  public CompletableFuture<Void> set(String key, int expiry, Object value) {
    return store(SET, key, expiry, 0, value, completion -> null);
  }

  /** See {@link CouaClient#add}. */
  public CompletableFuture<Boolean> add(String key, int expiry, Object value) {
    return store(ADD, key, expiry, 0, value, AsyncClient::isDone);
  }

  /** See {@link CouaClient#replace}. */
  public CompletableFuture<Boolean> replace(String key, int expiry, Object value) {
    return store(REPLACE, key, expiry, 0, value, AsyncClient::isDone);
  }

  /** See {@link CouaClient#append}. */
  public CompletableFuture<Boolean> append(String key, Object value) {
    return store(APPEND, key, 0, 0, value, AsyncClient::isDone);
  }

  /** See {@link CouaClient#prepend}. */
  public CompletableFuture<Boolean> prepend(String key, Object value) {
    return store(PREPEND, key, 0, 0, value, AsyncClient::isDone);
  }

  /** See {@link CouaClient#cas}. */
  public CompletableFuture<CasResponse> cas(String key, long cas, int expiry, Object value) {
    return store(CAS, key, expiry, cas, value, completion -> CasResponse.of(status(completion)));
  }

  /** See {@link CouaClient#delete}. */
  public CompletableFuture<Boolean> delete(String key) {
    return submit(DELETE, key, nothing(), AsyncClient::isDone);
  }

  /** See {@link CouaClient#touch}. */
  public CompletableFuture<Boolean> touch(String key, int expiry) {
    return submit(TOUCH, key, expiring(expiry), AsyncClient::isDone);
  }

  /** See {@link CouaClient#incr(String, long)}. */
  public CompletableFuture<Long> incr(String key, long by) {
    return count(INCREMENT, key, by, null, 0);
  }

  /** See {@link CouaClient#incr(String, long, long, int)}. */
  public CompletableFuture<Long> incr(String key, long by, long initial, int expiry) {
    return count(INCREMENT, key, by, initial, expiry);
  }

  /** See {@link CouaClient#decr(String, long)}. */
  public CompletableFuture<Long> decr(String key, long by) {
    return count(DECREMENT, key, by, null, 0);
  }

  /** See {@link CouaClient#decr(String, long, long, int)}. */
  public CompletableFuture<Long> decr(String key, long by, long initial, int expiry) {
    return count(DECREMENT, key, by, initial, expiry);
  }

  /** See {@link CouaClient#flush()}. */
  public CompletableFuture<Void> flush() {
    return submit(FLUSH_ALL, null, nothing(), completion -> null);
  }
}

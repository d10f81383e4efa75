package coua.client;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * A client of coua and memcached. Many threads use one at once. {@link #async()} has the same operations without waiting.
 *
 * <p>Expiries are numbers as in spymemcached: 0 for never, up to 2,592,000 for seconds from now, above it for seconds
 * since 1970, negative for expired. A miss is {@code null}; an operation without a result throws {@link CouaException},
 * which says whether it may have been done.
 *
 * <pre>{@code
 * try (CouaClient cache = CouaClient.builder("10.0.0.1:11211,10.0.0.2:11211").open()) {
 *   cache.set("greeting", 60, "hello");
 *   Object greeting = cache.get("greeting");
 * }
 * }</pre>
 */
public final class CouaClient implements AutoCloseable {
  private static final int SET = 0;
  private static final int ADD = 1;
  private static final int REPLACE = 2;
  private static final int APPEND = 3;
  private static final int PREPEND = 4;
  private static final int CAS = 5;

  /** Closing it closes the client; every call holds it open meanwhile. */
  private final Arena arena;

  private final MemorySegment handle;

  /** Without it, operations that follow each other closely could hold the client open for good. */
  private volatile boolean isClosing;

  private final Transcoder<Object> transcoder;
  private final Builder builder;

  /** The number of the observer, or 0. */
  private final long observer;

  /** Null until somebody wants it; guarded by the arena. */
  private AsyncClient async;

  private CouaClient(Builder builder) {
    this.builder = builder;
    transcoder = builder.transcoder;
    arena = Arena.ofShared();
    observer = Observers.add(builder.observer);
    try (Scratch scratch = Scratch.take(null)) {
      MemorySegment into = scratch.number;
      int status =
          (int)
              Library.OPEN.invokeExact(
                  scratch.put(builder.servers), scratch.put(builder.options(builder.connections)),
                  Observers.function(observer), Observers.context(observer), into, scratch.error);
      check(status, scratch);
      handle = into.get(ADDRESS, 0).reinterpret(1, arena, CouaClient::free);
    } catch (Throwable cause) {
      arena.close();
      Observers.remove(observer);
      throw Library.failed(cause);
    }
  }

  private static void free(MemorySegment handle) {
    try {
      Library.CLOSE.invokeExact(handle);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  private MemorySegment handle() {
    if (isClosing) {
      throw new IllegalStateException("the client is closed");
    }
    return handle;
  }

  /** A client with the default settings, of servers in a list that commas separate. */
  public static CouaClient open(String servers) {
    return builder(servers).open();
  }

  /** The settings of a client: HOST, HOST:PORT, [IPV6]:PORT or unix:/PATH, with commas between them. */
  public static Builder builder(String servers) {
    return new Builder(servers);
  }

  /**
   * The same operations, which give futures. They have connections of their own.
   *
   * @throws IllegalStateException when the client is closed
   */
  public AsyncClient async() {
    synchronized (arena) {
      handle();
      if (async == null) {
        async = new AsyncClient(builder.servers, builder.options(builder.asyncConnections), transcoder, observer);
      }
      return async;
    }
  }

  /** Ends the client once no operation uses it any more. Operations that begin afterwards throw. */
  @Override
  public void close() {
    AsyncClient begun;
    synchronized (arena) {
      isClosing = true;
      begun = async;
    }
    if (begun != null) {
      begun.close();
    }
    for (long milliseconds = 1; ; milliseconds = Math.min(2 * milliseconds, 50)) {
      try {
        if (arena.scope().isAlive()) {
          arena.close();
        }
        Observers.remove(observer);
        return;
      } catch (IllegalStateException inUse) {
        // Some thread is in an operation, which has a limit of time.
        try {
          Thread.sleep(milliseconds);
        } catch (InterruptedException interrupted) {
          Thread.currentThread().interrupt();
          Thread.yield();
        }
      }
    }
  }

  /** The value of an item, or null. */
  public Object get(String key) {
    return get(key, transcoder);
  }

  /** The value of an item, or null. */
  public <T> T get(String key, Transcoder<T> transcoder) {
    CasValue<T> found = gets(key, transcoder);
    return found == null ? null : found.value();
  }

  /** The value of an item with its CAS, or null. */
  public CasValue<Object> gets(String key) {
    return gets(key, transcoder);
  }

  /** The value of an item with its CAS, or null. */
  public <T> CasValue<T> gets(String key, Transcoder<T> transcoder) {
    try (Scratch scratch = Scratch.take(key)) {
      return fetch(scratch) == Library.OK ? taken(scratch, transcoder) : null;
    }
  }

  /** Changes when an item expires, and gives its value with its CAS, or null. */
  public CasValue<Object> getAndTouch(String key, int expiry) {
    return getAndTouch(key, expiry, transcoder);
  }

  /** Changes when an item expires, and gives its value with its CAS, or null. */
  public <T> CasValue<T> getAndTouch(String key, int expiry, Transcoder<T> transcoder) {
    try (Scratch scratch = Scratch.take(key)) {
      int status =
          check(
              (int)
                  Library.GET_AND_TOUCH.invokeExact(
                      handle(), scratch.key, scratch.keyLen, (long) expiry, scratch.value, scratch.error),
              scratch);
      return status == Library.OK ? taken(scratch, transcoder) : null;
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** A value to read in place, or null. Close it. */
  public Lease lease(String key) {
    try (Scratch scratch = Scratch.take(key)) {
      return fetch(scratch) == Library.OK ? new Lease(scratch.value) : null;
    }
  }

  /**
   * Copies a value into an array, as much of it as there is room for.
   *
   * @return the length of the value, which may be larger than the array; -1 is a miss
   */
  public int getInto(String key, byte[] into) {
    try (Scratch scratch = Scratch.take(key)) {
      if (fetch(scratch) != Library.OK) {
        return -1;
      }
      try {
        MemorySegment bytes = Library.Value.bytes(scratch.value);
        int len = (int) Math.min(bytes.byteSize(), into.length);
        MemorySegment.copy(bytes, JAVA_BYTE, 0, into, 0, len);
        return (int) bytes.byteSize();
      } finally {
        release(scratch.value, 1);
      }
    }
  }

  /** The values of those items that are there, each server asked once and all of them together. */
  public Map<String, Object> getBulk(Collection<String> keys) {
    return getBulk(keys, transcoder);
  }

  /** The values of those items that are there, each server asked once and all of them together. */
  public <T> Map<String, T> getBulk(Collection<String> keys, Transcoder<T> transcoder) {
    try (Scratch scratch = Scratch.take(null)) {
      int count = keys.size();
      MemorySegment slices = scratch.slices(keys);
      MemorySegment values = scratch.allocate(count * Library.Value.SIZE);
      int status = (int) Library.GET_MANY.invokeExact(handle(), slices, (long) count, values, scratch.error);
      try {
        check(status, scratch);
        Map<String, T> found = LinkedHashMap.newLinkedHashMap(count);
        long at = 0;
        for (String key : keys) {
          MemorySegment value = values.asSlice(at, Library.Value.SIZE);
          if (Library.Value.status(value) == Library.OK) {
            found.put(key, decoded(value, transcoder));
          }
          at += Library.Value.SIZE;
        }
        return found;
      } finally {
        release(values, count);
      }
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** Stores a value. */
  public void set(String key, int expiry, Object value) {
    set(key, expiry, value, transcoder);
  }

  /** Stores a value. */
  public <T> void set(String key, int expiry, T value, Transcoder<T> transcoder) {
    store(SET, key, expiry, 0, transcoder.encode(value));
  }

  /** Stores a value if there is no such item; says whether it did. */
  public boolean add(String key, int expiry, Object value) {
    return store(ADD, key, expiry, 0, transcoder.encode(value)) == Library.OK;
  }

  /** Stores a value if there is an item already; says whether it did. */
  public boolean replace(String key, int expiry, Object value) {
    return store(REPLACE, key, expiry, 0, transcoder.encode(value)) == Library.OK;
  }

  /** Puts bytes behind an item's value; says whether there was one. The item keeps its client flags. */
  public boolean append(String key, Object value) {
    return store(APPEND, key, 0, 0, transcoder.encode(value)) == Library.OK;
  }

  /** Puts bytes in front of an item's value; says whether there was one. The item keeps its client flags. */
  public boolean prepend(String key, Object value) {
    return store(PREPEND, key, 0, 0, transcoder.encode(value)) == Library.OK;
  }

  /** Stores a value if the item still has the CAS that {@link #gets} told. */
  public CasResponse cas(String key, long cas, int expiry, Object value) {
    return CasResponse.of(store(CAS, key, expiry, cas, transcoder.encode(value)));
  }

  /** Deletes an item; says whether there was one. */
  public boolean delete(String key) {
    try (Scratch scratch = Scratch.take(key)) {
      int status = (int) Library.DELETE.invokeExact(handle(), scratch.key, scratch.keyLen, scratch.error);
      return check(status, scratch) == Library.OK;
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** Changes when an item expires; says whether there is one. */
  public boolean touch(String key, int expiry) {
    try (Scratch scratch = Scratch.take(key)) {
      int status =
          (int) Library.TOUCH.invokeExact(handle(), scratch.key, scratch.keyLen, (long) expiry, scratch.error);
      return check(status, scratch) == Library.OK;
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** Adds to a decimal number, which has 64 bits without a sign and wraps; the new one, or -1 without an item. */
  public long incr(String key, long by) {
    return count(Library.INCREMENT, key, by, null, 0);
  }

  /** As {@link #incr(String, long)}; a missing item becomes {@code initial}. */
  public long incr(String key, long by, long initial, int expiry) {
    return count(Library.INCREMENT, key, by, initial, expiry);
  }

  /** Subtracts from a decimal number and stops at 0; the new one, or -1 without an item. */
  public long decr(String key, long by) {
    return count(Library.DECREMENT, key, by, null, 0);
  }

  /** As {@link #decr(String, long)}; a missing item becomes {@code initial}. */
  public long decr(String key, long by, long initial, int expiry) {
    return count(Library.DECREMENT, key, by, initial, expiry);
  }

  /** Makes all items of all servers expire. */
  public void flush() {
    flush(0);
  }

  /** Makes all items of all servers expire in so many seconds. */
  public void flush(int delaySeconds) {
    try (Scratch scratch = Scratch.take(null)) {
      check((int) Library.FLUSH_ALL.invokeExact(handle(), delaySeconds, scratch.error), scratch);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** The version of each server, by its address. A server without an answer is left out. */
  public Map<String, String> getVersions() {
    Map<String, String> versions = new LinkedHashMap<>();
    ask("version").forEach((server, lines) -> versions.put(server, lines.get("version")));
    return versions;
  }

  /** The statistics of each server, by its address. A server without an answer is left out. */
  public Map<String, Map<String, String>> getStats() {
    return ask("stats");
  }

  /** As {@link #getStats()}, of one kind: {@code settings}, {@code items} and others. */
  public Map<String, Map<String, String>> getStats(String kind) {
    return ask("stats " + kind);
  }

  private Map<String, Map<String, String>> ask(String what) {
    try (Scratch scratch = Scratch.take(null)) {
      int status =
          (int) Library.ASK_SERVERS.invokeExact(handle(), scratch.put(what), scratch.value, scratch.error);
      check(status, scratch);
      byte[] bytes = taken(scratch, Transcoder.RAW).value();
      Map<String, Map<String, String>> told = new LinkedHashMap<>();
      for (String line : new String(bytes, StandardCharsets.UTF_8).split("\n")) {
        String[] words = line.split(" ", 3);
        if (words.length == 3 && !words[1].equals("error")) {
          told.computeIfAbsent(words[0], server -> new LinkedHashMap<>()).put(words[1], words[2]);
        }
      }
      return told;
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  private int store(int mode, String key, int expiry, long cas, CachedData data) {
    try (Scratch scratch = Scratch.take(key)) {
      byte[] bytes = data.bytes();
      int status =
          (int)
              Library.STORE.invokeExact(
                  handle(), mode, scratch.key, scratch.keyLen, scratch.put(bytes), (long) bytes.length, data.flags(),
                  (long) expiry, cas, scratch.error);
      return check(status, scratch);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  private long count(MethodHandle function, String key, long by, Long initial, int expiry) {
    if (by < 0) {
      throw new IllegalArgumentException("a number is changed by 0 and above, not by " + by);
    }
    try (Scratch scratch = Scratch.take(key)) {
      MemorySegment first = initial == null ? MemorySegment.NULL : scratch.initially(initial);
      int status =
          (int)
              function.invokeExact(
                  handle(), scratch.key, scratch.keyLen, by, first, (long) expiry, scratch.number, scratch.error);
      return check(status, scratch) == Library.OK ? scratch.number.get(JAVA_LONG, 0) : -1;
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  private int fetch(Scratch scratch) {
    try {
      int status =
          (int) Library.GET.invokeExact(handle(), scratch.key, scratch.keyLen, scratch.value, scratch.error);
      return check(status, scratch);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  private static int check(int status, Scratch scratch) {
    if (status < 0) {
      throw Library.Error.of(status, scratch.error);
    }
    return status;
  }

  /** Copies what is lent and gives it back. */
  private static <T> CasValue<T> taken(Scratch scratch, Transcoder<T> transcoder) {
    try {
      return new CasValue<>(decoded(scratch.value, transcoder), Library.Value.cas(scratch.value));
    } finally {
      release(scratch.value, 1);
    }
  }

  static <T> T decoded(MemorySegment value, Transcoder<T> transcoder) {
    byte[] bytes = Library.Value.bytes(value).toArray(JAVA_BYTE);
    return transcoder.decode(new CachedData(Library.Value.flags(value), bytes));
  }

  static void release(MemorySegment values, long count) {
    try {
      Library.RELEASE.invokeExact(values, count);
    } catch (Throwable cause) {
      throw Library.failed(cause);
    }
  }

  /** The settings of a client. */
  public static final class Builder {
    private final String servers;
    private Duration operationTimeout = Duration.ofMillis(2500);
    private Duration connectTimeout = Duration.ofSeconds(1);
    private int connections = 16;
    private int asyncConnections = 2;
    private FailureMode failureMode = FailureMode.REDISTRIBUTE;
    private Distribution distribution = Distribution.KETAMA;
    private Transcoder<Object> transcoder = new SerializingTranscoder();
    private String login = "";
    private String tls = "";
    private String discovery = "";
    private ConnectionObserver observer;

    private Builder(String servers) {
      this.servers = servers;
    }

    /** How long an operation may take; 2.5 seconds by default. What had no effect is tried once more. */
    public Builder operationTimeout(Duration timeout) {
      operationTimeout = timeout;
      return this;
    }

    /** How long opening a connection may take; 1 second by default. */
    public Builder connectTimeout(Duration timeout) {
      connectTimeout = timeout;
      return this;
    }

    /** The most connections to one server, each of which a thread has to itself; 16 by default. */
    public Builder connections(int most) {
      connections = most;
      return this;
    }

    /** The connections to one server that asynchronous operations share; 2 by default. */
    public Builder asyncConnections(int connections) {
      asyncConnections = connections;
      return this;
    }

    /** Who is told what becomes of servers and connections; nobody by default. */
    public Builder observer(ConnectionObserver observer) {
      this.observer = observer;
      return this;
    }

    /** Encrypts connections, as servers with {@code -Z} want it, and trusts the authorities in this file (PEM). */
    public Builder tls(Path authorities) {
      tls = " tls_ca_file=" + escaped(authorities.toString());
      return this;
    }

    /** The same, and shows a certificate of one's own with its key (PEM). */
    public Builder tls(Path authorities, Path certificate, Path key) {
      tls(authorities);
      tls += " tls_cert_file=" + escaped(certificate.toString()) + " tls_key_file=" + escaped(key.toString());
      return this;
    }

    /** The servers are those that the given ones tell of: asked at the beginning, and then once an interval. */
    public Builder discovery(Discovery source, Duration interval) {
      discovery = " discovery=" + source.option + " discovery_interval_ms=" + interval.toMillis();
      return this;
    }

    /** What happens to the keys of a server that fails; they go to others by default. */
    public Builder failureMode(FailureMode mode) {
      failureMode = mode;
      return this;
    }

    /** How keys are spread over servers; libmemcached's ring by default. */
    public Builder distribution(Distribution distribution) {
      this.distribution = distribution;
      return this;
    }

    /** How objects become bytes; {@link SerializingTranscoder} by default. */
    public Builder transcoder(Transcoder<Object> transcoder) {
      this.transcoder = transcoder;
      return this;
    }

    /** Logs in on each new connection, as servers with {@code -Y} want it. The user's name has no blanks. */
    public Builder login(String user, String password) {
      login = " user=" + escaped(user) + " password=" + escaped(password);
      return this;
    }

    /** Every byte as {@code %XX}: no letter of a password means anything to the options then. */
    private static String escaped(String text) {
      var escaped = new StringBuilder();
      for (byte one : text.getBytes(StandardCharsets.UTF_8)) {
        escaped.append(String.format("%%%02x", one));
      }
      return escaped.toString();
    }

    /**
     * The client. Connections are opened when they are needed.
     *
     * @throws CouaException of the kind {@code INVALID} for a setting that is wrong
     */
    public CouaClient open() {
      return new CouaClient(this);
    }

    private String options(int connections) {
      return String.join(
          " ",
          "operation_timeout_ms=" + operationTimeout.toMillis(),
          "connect_timeout_ms=" + connectTimeout.toMillis(),
          "connections=" + connections,
          "failover=" + failureMode.option,
          "distribution=" + distribution.option)
          + login
          + tls
          + discovery;
    }
  }
}

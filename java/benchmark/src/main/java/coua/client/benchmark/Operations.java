package coua.client.benchmark;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;

/** 1000 keys, and texts of 100 letters as values, which all clients store in the same bytes. */
@State(Scope.Benchmark)
@OutputTimeUnit(TimeUnit.MICROSECONDS)
public class Operations {
  private static final int KEYS = 1000;
  private static final int MANY = 100;

  @Param("coua")
  public String client;

  private Contender contender;
  private String[] keys;
  private List<List<String>> groups;
  private final String value = "v".repeat(100);

  /** Which key is next. */
  @State(Scope.Thread)
  public static class Turn {
    private int at = (int) Thread.currentThread().threadId() * 7919 % KEYS;

    int next(int of) {
      at = at + 1 < of ? at + 1 : 0;
      return at;
    }
  }

  @Setup
  public void setUp() throws Exception {
    String[] server = System.getProperty("coua.server", "127.0.0.1:11211").split(":");
    contender = Contender.of(client, server[0], Integer.parseInt(server[1]));
    keys = new String[KEYS];
    groups = new ArrayList<>();
    for (int i = 0; i < KEYS; i++) {
      keys[i] = "benchmark:" + i;
      contender.set(keys[i], value);
    }
    for (int i = 0; i < KEYS; i += MANY) {
      groups.add(List.of(keys).subList(i, i + MANY));
    }
  }

  @TearDown
  public void tearDown() throws Exception {
    contender.close();
  }

  @Benchmark
  public Object get(Turn turn) throws Exception {
    return found(contender.get(keys[turn.next(KEYS)]));
  }

  @Benchmark
  public void set(Turn turn) throws Exception {
    contender.set(keys[turn.next(KEYS)], value);
  }

  @Benchmark
  public Map<String, ?> getBulk100(Turn turn) throws Exception {
    Map<String, ?> found = contender.getBulk(groups.get(turn.next(KEYS / MANY)));
    if (found.size() != MANY) {
      throw new IllegalStateException("not all are there");
    }
    return found;
  }

  /** Begins 100 gets and then waits for all of them. XMemcached has no such gets. */
  @Benchmark
  @OperationsPerInvocation(MANY)
  public void get100Ahead(Turn turn) throws Exception {
    Future<?>[] begun = new Future<?>[MANY];
    for (int i = 0; i < MANY; i++) {
      begun[i] = contender.begin(keys[turn.next(KEYS)]);
    }
    for (Future<?> one : begun) {
      found(one.get());
    }
  }

  private static Object found(Object value) {
    if (value == null) {
      throw new IllegalStateException("a value is missing");
    }
    return value;
  }
}

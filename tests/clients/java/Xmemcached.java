// Every operation of XMemcached against the server at HOST PORT, in the DIALECT text or binary.
// Exits with 1 at the first surprise.

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.Callable;
import net.rubyeye.xmemcached.CASOperation;
import net.rubyeye.xmemcached.GetsResponse;
import net.rubyeye.xmemcached.MemcachedClient;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;
import net.rubyeye.xmemcached.command.BinaryCommandFactory;
import net.rubyeye.xmemcached.command.TextCommandFactory;
import net.rubyeye.xmemcached.exception.MemcachedException;
import net.rubyeye.xmemcached.transcoders.SerializingTranscoder;

public final class Xmemcached {
  private static MemcachedClient client;
  private static InetSocketAddress address;
  private static boolean binary;

  public static void main(String[] arguments) throws Exception {
    address = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    binary = arguments[2].equals("binary");
    client = connect(2);
    try {
      client.flushAll();
      storage();
      values();
      withoutReply();
      many();
      cas();
      counting();
      times();
      wholeServer();
      refusals();
      System.out.println("xmemcached: all well in " + arguments[2]);
    } catch (Surprise surprise) {
      System.out.println("xmemcached: " + surprise.getMessage());
      System.exit(1);
    }
    client.shutdown();
  }

  private static MemcachedClient connect(int connections) throws Exception {
    var builder = new XMemcachedClientBuilder(List.of(address));
    builder.setCommandFactory(binary ? new BinaryCommandFactory() : new TextCommandFactory());
    builder.setTranscoder(new SerializingTranscoder(4 << 20));
    builder.setConnectionPoolSize(connections);
    var connected = builder.build();
    connected.setOpTimeout(10_000);
    return connected;
  }

  private static void storage() throws Exception {
    check("set", client.set("s", 0, "value"), true);
    check("get", client.get("s"), "value");
    check("get miss", client.get("none"), null);
    check("add", client.add("s", 0, "x"), false);
    check("add new", client.add("added", 0, "x"), true);
    check("replace", client.replace("s", 0, "other"), true);
    check("replace miss", client.replace("none", 0, "x"), false);
    check("append", client.append("s", "+"), true);
    check("prepend", client.prepend("s", "-"), true);
    check("get joined", client.get("s"), "-other+");
    check("append miss", client.append("none", "x"), false);
    check("prepend miss", client.prepend("none", "x"), false);
    check("delete", client.delete("s"), true);
    check("delete miss", client.delete("s"), false);
    check("get deleted", client.get("s"), null);
    check("set of the longest key", client.set("k".repeat(250), 0, 1), true);
    check("get of the longest key", client.get("k".repeat(250)), 1);
  }

  /** The type of a value, and that it is compressed, are bits of the flags. */
  private static void values() throws Exception {
    Object[] values = {1, -1L, true, (byte) 7, 1.5f, 2.5, "", "text\r\n", new ArrayList<>(List.of("a", 1)), "long ".repeat(10_000)};
    for (Object value : values) {
      check("set of a " + value.getClass(), client.set("v", 0, value), true);
      check("get of a " + value.getClass(), client.get("v"), value);
    }
    byte[] large = new byte[900_000];
    new Random(1).nextBytes(large);
    check("set large", client.set("large", 0, large), true);
    check("get large", Arrays.equals((byte[]) client.get("large"), large), true);
  }

  /** Orders without an answer arrive in their order on one of the connections: each is waited for. */
  private static void withoutReply() throws Exception {
    client.setWithNoReply("q", 0, "value");
    until("setWithNoReply", "q", "value");
    client.addWithNoReply("q", 0, "not this");
    client.replaceWithNoReply("q", 0, "other");
    until("replaceWithNoReply", "q", "other");
    client.appendWithNoReply("q", "+");
    until("appendWithNoReply", "q", "other+");
    client.prependWithNoReply("q", "-");
    until("prependWithNoReply", "q", "-other+");
    client.casWithNoReply("q", 0, always("swapped"));
    until("casWithNoReply", "q", "swapped");
    client.deleteWithNoReply("q");
    until("deleteWithNoReply", "q", null);
    client.set("n", 0, "10");
    client.incrWithNoReply("n", 5);
    until("incrWithNoReply", "n", "15");
    client.decrWithNoReply("n", 3);
    until("decrWithNoReply", "n", "12");
    client.flushAllWithNoReply();
    until("flushAllWithNoReply", "n", null);
    // It goes over each of the connections, and the answers to this one come behind it on all of them.
    client.flushAll();
  }

  private static void many() throws Exception {
    Map<String, Object> wanted = new HashMap<>();
    for (int i = 0; i < 1000; i++) {
      wanted.put("many" + i, "value" + i);
      check("set of many", client.set("many" + i, 0, "value" + i), true);
    }
    var keys = new HashSet<>(wanted.keySet());
    keys.add("none");
    check("get of many", client.get(keys), wanted);
    Map<String, GetsResponse<Object>> seen = client.gets(keys);
    check("gets of many", seen.keySet(), wanted.keySet());
    check("cas of one of many", client.cas("many7", 0, "x", seen.get("many7").getCas()), true);
    for (String key : wanted.keySet()) {
      check("delete of many", client.delete(key), true);
    }
    check("get of what is deleted", client.get(keys), Map.of());
  }

  private static void cas() throws Exception {
    client.set("c", 0, "first");
    GetsResponse<Object> seen = client.gets("c");
    check("gets", seen.getValue(), "first");
    check("gets miss", client.gets("none"), null);
    check("cas", client.cas("c", 0, "second", seen.getCas()), true);
    check("cas again", client.cas("c", 0, "third", seen.getCas()), false);
    check("get after cas", client.get("c"), "second");
    check("cas by an operation", client.cas("c", 0, always("fourth")), true);
    check("get after the operation", client.get("c"), "fourth");
    check("cas miss", client.cas("none", 0, "x", seen.getCas()), false);
    if (binary) {
      check("delete with an old cas", client.delete("c", seen.getCas(), 10_000), false);
      check("delete with its cas", client.delete("c", client.gets("c").getCas(), 10_000), true);
    }
  }

  private static void counting() throws Exception {
    check("incr initial", client.incr("i", 5, 40), 40L);
    check("incr", client.incr("i", 5), 45L);
    check("decr", client.decr("i", 3), 42L);
    check("decr below zero", client.decr("i", 100), 0L);
    check("decr initial", client.decr("j", 1, 7), 7L);
    var counter = client.getCounter("counter", 10);
    check("a counter", counter.addAndGet(-3), 7L);
  }

  private static void times() throws Exception {
    for (String key : List.of("t", "u", "v")) {
      client.set(key, 2, key);
    }
    client.set("w", (int) (System.currentTimeMillis() / 1000) + 100, "w");
    check("touch", client.touch("u", 100), true);
    check("touch miss", client.touch("none", 100), false);
    if (binary) {
      check("getAndTouch", client.getAndTouch("v", 100), "v");
      check("getAndTouch miss", client.getAndTouch("none", 100), null);
    } else {
      // XMemcached has no gat in text.
      client.touch("v", 100);
    }
    Thread.sleep(3200);
    check("what is expired and what is not", client.get(List.of("t", "u", "v", "w")), Map.of("u", "u", "v", "v", "w", "w"));
  }

  private static void wholeServer() throws Exception {
    // In binary XMemcached 2.4.8 counts an answer twice, so that of two connections it waits for one, and takes what the
    // other one has not answered yet. With one connection there is nothing else to take.
    MemcachedClient single = connect(1);
    String version = single.getVersions().get(address);
    single.shutdown();
    check("getVersions", String.valueOf(version).matches(".*\\d+\\.\\d+.*"), true);
    Map<String, String> stats = client.stats(address);
    for (String key : List.of("pid", "version", "curr_items", "cmd_get", "threads")) {
      check("stats " + key, stats.containsKey(key), true);
    }
    check("getStatsByItem settings", client.getStatsByItem("settings").get(address).containsKey("maxbytes"), true);
    if (!binary) {
      // memcached does not know this order in binary.
      client.setLoggingLevelVerbosity(address, 0);
    }
    client.set("f", 0, "x");
    client.flushAll();
    check("get flushed", client.get("f"), null);
  }

  /** These come last: after some answers XMemcached leaves the connection and comes back later. */
  private static void refusals() throws Exception {
    byte[] tooLarge = new byte[2_000_000];
    new Random(2).nextBytes(tooLarge);
    refused("a value too large", () -> client.set("large", 0, tooLarge));
    check("get of what was too large", client.get("large"), null);
    client.set("text", 0, "x");
    refused("incr of text", () -> client.incr("text", 1));
  }

  private static CASOperation<Object> always(String value) {
    return new CASOperation<>() {
      @Override
      public int getMaxTries() {
        return 3;
      }

      @Override
      public Object getNewValue(long cas, Object old) {
        return value;
      }
    };
  }

  private static void until(String what, String key, Object wanted) throws Exception {
    for (int tries = 0; tries < 200 && !Objects.equals(client.get(key), wanted); tries++) {
      Thread.sleep(10);
    }
    check(what, client.get(key), wanted);
  }

  private static void refused(String what, Callable<Object> operation) throws Exception {
    Object got;
    try {
      got = operation.call();
    } catch (MemcachedException wanted) {
      return;
    }
    throw new Surprise(what + ": got " + got + ", wanted a refusal");
  }

  private static void check(String what, Object got, Object wanted) {
    if (!Objects.equals(got, wanted)) {
      String told = String.valueOf(got);
      throw new Surprise(what + ": got " + told.substring(0, Math.min(200, told.length())) + ", wanted " + wanted);
    }
  }

  private static final class Surprise extends RuntimeException {
    Surprise(String message) {
      super(message);
    }
  }
}

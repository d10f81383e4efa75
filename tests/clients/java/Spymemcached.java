// Every operation of spymemcached against the server at HOST PORT, in the DIALECT text or binary.
// Exits with 1 at the first surprise.

import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import net.spy.memcached.CASMutation;
import net.spy.memcached.CASMutator;
import net.spy.memcached.CASResponse;
import net.spy.memcached.CASValue;
import net.spy.memcached.ConnectionFactoryBuilder;
import net.spy.memcached.ConnectionFactoryBuilder.Protocol;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.auth.AuthDescriptor;
import net.spy.memcached.auth.PlainCallbackHandler;
import net.spy.memcached.transcoders.SerializingTranscoder;

public final class Spymemcached {
  private static MemcachedClient client;
  private static InetSocketAddress address;
  private static boolean binary;

  public static void main(String[] arguments) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
    address = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    binary = arguments[2].equals("binary");
    client = connect(1 << 20);
    try {
      check("flush", await(client.flush()), true);
      storage();
      values();
      many();
      cas();
      counting();
      times();
      tooLarge();
      wholeServer();
      System.out.println("spymemcached: all well in " + arguments[2]);
    } catch (Surprise surprise) {
      System.out.println("spymemcached: " + surprise.getMessage());
      System.exit(1);
    }
    client.shutdown(10, TimeUnit.SECONDS);
  }

  private static MemcachedClient connect(int largest) throws Exception {
    var settings = new ConnectionFactoryBuilder()
        .setProtocol(binary ? Protocol.BINARY : Protocol.TEXT)
        .setTranscoder(new SerializingTranscoder(largest))
        .setOpTimeout(10_000);
    String user = System.getenv("LOGIN_USER");
    if (binary && user != null) {
      var words = new PlainCallbackHandler(user, System.getenv("LOGIN_PASSWORD"));
      settings.setAuthDescriptor(new AuthDescriptor(new String[] {"PLAIN"}, words));
    }
    return new MemcachedClient(settings.build(), List.of(address));
  }

  private static void storage() throws Exception {
    check("set", await(client.set("s", 0, "value")), true);
    check("get", client.get("s"), "value");
    check("get miss", client.get("none"), null);
    check("add", await(client.add("s", 0, "x")), false);
    check("add new", await(client.add("added", 0, "x")), true);
    check("replace", await(client.replace("s", 0, "other")), true);
    check("replace miss", await(client.replace("none", 0, "x")), false);
    check("append", await(client.append("s", "+")), true);
    check("prepend", await(client.prepend("s", "-")), true);
    check("get joined", client.get("s"), "-other+");
    check("append miss", await(client.append("none", "x")), false);
    check("prepend miss", await(client.prepend("none", "x")), false);
    check("append with a cas", await(client.append(client.gets("s").getCas(), "s", "!")), true);
    check("get joined with a cas", client.get("s"), "-other+!");
    check("delete", await(client.delete("s")), true);
    check("delete miss", await(client.delete("s")), false);
    check("get deleted", client.get("s"), null);
    String longest = "k".repeat(250);
    check("set of the longest key", await(client.set(longest, 0, 1)), true);
    check("get of the longest key", client.get(longest), 1);
  }

  /** The type of a value, and that it is compressed, are bits of the flags. */
  private static void values() throws Exception {
    Object[] values = {1, -1L, true, (byte) 7, 1.5f, 2.5, new Date(1_600_000_000_000L), "", "text\r\n", new ArrayList<>(List.of("a", 1)), "long ".repeat(10_000)};
    for (Object value : values) {
      check("set of a " + value.getClass(), await(client.set("v", 0, value)), true);
      check("get of a " + value.getClass(), client.get("v"), value);
    }
    byte[] large = new byte[900_000];
    new Random(1).nextBytes(large);
    check("set large", await(client.set("large", 0, large)), true);
    check("get large", Arrays.equals((byte[]) client.get("large"), large), true);
  }

  private static void many() throws Exception {
    Map<String, Object> wanted = new HashMap<>();
    List<Future<Boolean>> sets = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      wanted.put("many" + i, "value" + i);
      sets.add(client.set("many" + i, 0, "value" + i));
    }
    for (Future<Boolean> set : sets) {
      check("set of many", await(set), true);
    }
    List<String> keys = new ArrayList<>(wanted.keySet());
    keys.add("none");
    check("getBulk", client.getBulk(keys), wanted);
    check("asyncGetBulk of nothing", client.asyncGetBulk("none", "none2").get(10, TimeUnit.SECONDS), Map.of());
    // Gets that wait at the same time travel as one quiet multi-get.
    List<Future<Object>> gets = new ArrayList<>();
    for (String key : keys) {
      gets.add(client.asyncGet(key));
    }
    for (int i = 0; i < keys.size(); i++) {
      check("asyncGet", await(gets.get(i)), wanted.get(keys.get(i)));
    }
    List<Future<Boolean>> deletes = new ArrayList<>();
    for (String key : wanted.keySet()) {
      deletes.add(client.delete(key));
    }
    for (Future<Boolean> delete : deletes) {
      check("delete of many", await(delete), true);
    }
    check("getBulk of what is deleted", client.getBulk(keys), Map.of());
  }

  private static void cas() throws Exception {
    client.set("c", 0, "first").get();
    CASValue<Object> seen = client.gets("c");
    check("gets", seen.getValue(), "first");
    check("gets miss", client.gets("none"), null);
    check("cas", client.cas("c", seen.getCas(), "second"), CASResponse.OK);
    check("cas again", client.cas("c", seen.getCas(), "third"), CASResponse.EXISTS);
    check("get after cas", client.get("c"), "second");
    check("cas miss", client.cas("none", seen.getCas(), "x"), CASResponse.NOT_FOUND);
    if (binary) {
      check("delete with an old cas", await(client.delete("c", seen.getCas())), false);
      check("delete with its cas", await(client.delete("c", client.gets("c").getCas())), true);
      long stored = stored(client.set("c", 0, "fourth"));
      check("the cas that a set tells", client.gets("c").getCas(), stored);
    }
    var mutator = new CASMutator<>(client, client.getTranscoder());
    CASMutation<Object> longer = old -> old + "+";
    client.set("c", 0, "x").get();
    check("a mutator", mutator.cas("c", "new", 0, longer), "x+");
    client.delete("c").get();
    check("a mutator at a miss", mutator.cas("c", "new", 0, longer), "new");
  }

  private static long stored(net.spy.memcached.internal.OperationFuture<Boolean> set) throws Exception {
    set.get(10, TimeUnit.SECONDS);
    return set.getCas();
  }

  private static void counting() throws Exception {
    check("incr miss", client.incr("none", 1), -1L);
    check("decr miss", client.decr("none", 1), -1L);
    check("incr initial", client.incr("i", 5, 40, 100), 40L);
    check("incr", client.incr("i", 5), 45L);
    check("decr", client.decr("i", 3), 42L);
    check("decr below zero", client.decr("i", 100), 0L);
    check("decr initial", client.decr("j", 1, 7), 7L);
    check("asyncIncr", await(client.asyncIncr("j", 1)), 8L);
    check("asyncDecr", await(client.asyncDecr("j", 2)), 6L);
    client.set("text", 0, "x").get();
    // This client tells a refusal as it tells a miss.
    check("incr of text", client.incr("text", 1), -1L);
    check("get of the text", client.get("text"), "x");
    check("after an error", client.incr("j", 1), 7L);
  }

  private static void times() throws Exception {
    for (String key : List.of("t", "u", "v")) {
      client.set(key, 2, key).get();
    }
    client.set("w", (int) (System.currentTimeMillis() / 1000) + 100, "w").get();
    check("touch", await(client.touch("u", 100)), true);
    check("touch miss", await(client.touch("none", 100)), false);
    if (binary) {
      CASValue<Object> seen = client.getAndTouch("v", 100);
      check("getAndTouch", seen.getValue(), "v");
      check("the cas of getAndTouch", seen.getCas(), client.gets("v").getCas());
      check("getAndTouch miss", client.getAndTouch("none", 100), null);
    } else {
      // spymemcached has no gat in text.
      client.touch("v", 100).get();
    }
    Thread.sleep(3200);
    check("what is expired and what is not", client.getBulk("t", "u", "v", "w"), Map.of("u", "u", "v", "v", "w", "w"));
  }

  private static void tooLarge() throws Exception {
    var generous = connect(4 << 20);
    byte[] bytes = new byte[2_000_000];
    new Random(2).nextBytes(bytes);
    try {
      check("a value too large", generous.set("large", 0, bytes).get(10, TimeUnit.SECONDS), false);
    } catch (ExecutionException refused) {
      // In text the refusal is an error of the server.
      check("a refusal in text", binary, false);
    }
    check("get of what was too large", generous.get("large"), null);
    generous.shutdown();
  }

  private static void wholeServer() throws Exception {
    check("getVersions", client.getVersions().get(address).matches(".*\\d+\\.\\d+.*"), true);
    Map<String, String> stats = client.getStats().get(address);
    for (String key : List.of("pid", "version", "curr_items", "cmd_get", "threads")) {
      check("getStats " + key, stats.containsKey(key), true);
    }
    check("getStats settings", client.getStats("settings").get(address).containsKey("maxbytes"), true);
    client.set("f", 0, "x").get();
    check("flush", await(client.flush()), true);
    check("get flushed", client.get("f"), null);
  }

  private static <T> T await(Future<T> future) throws Exception {
    return future.get(10, TimeUnit.SECONDS);
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

// Every operation of folsom against the server at HOST PORT, in the DIALECT text or binary.
// Exits with 1 at the first surprise.

import static com.spotify.folsom.MemcacheStatus.ITEM_NOT_STORED;
import static com.spotify.folsom.MemcacheStatus.KEY_EXISTS;
import static com.spotify.folsom.MemcacheStatus.KEY_NOT_FOUND;
import static com.spotify.folsom.MemcacheStatus.OK;
import static com.spotify.folsom.MemcacheStatus.VALUE_TOO_LARGE;

import com.spotify.folsom.AsciiMemcacheClient;
import com.spotify.folsom.BinaryMemcacheClient;
import com.spotify.folsom.ConnectFuture;
import com.spotify.folsom.GetResult;
import com.spotify.folsom.MemcacheClient;
import com.spotify.folsom.MemcacheClientBuilder;
import com.spotify.folsom.MemcacheStatus;
import com.spotify.folsom.client.tls.DefaultSSLEngineFactory;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Random;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import javax.net.ssl.SSLContext;

public final class Folsom {
  private static MemcacheClient<String> client;
  /** The same client, where the dialect is binary; else null. */
  private static BinaryMemcacheClient<String> binary;
  private static String host;
  private static int port;

  public static void main(String[] arguments) throws Exception {
    host = arguments[0];
    port = Integer.parseInt(arguments[1]);
    var builder = MemcacheClientBuilder.newStringClient()
        .withAddress(host, port)
        .withConnections(2)
        .withMaxOutstandingRequests(10_000)
        .withRequestTimeoutMillis(10_000);
    secured(builder);
    if (arguments[2].equals("binary")) {
      binary = builder.connectBinary();
      client = binary;
    } else {
      client = builder.connectAscii();
    }
    ConnectFuture.connectFuture(client).toCompletableFuture().get(10, TimeUnit.SECONDS);
    try {
      check("flushAll", await(client.flushAll(0)), OK);
      storage();
      large();
      many();
      cas();
      counting();
      times();
      wholeServer();
      System.out.println("folsom: all well in " + arguments[2]);
    } catch (Surprise surprise) {
      System.out.println("folsom: " + surprise.getMessage());
      System.exit(1);
    }
    client.shutdown();
  }

  /** TLS with the stores of certificates that the virtual machine is given, where the environment asks for it. */
  private static <V> void secured(MemcacheClientBuilder<V> builder) throws Exception {
    if (System.getenv("TLS_CA") != null) {
      builder.withSSLEngineFactory(new DefaultSSLEngineFactory(SSLContext.getDefault(), true));
    }
  }

  private static void storage() throws Exception {
    check("set", await(client.set("s", "value", 0)), OK);
    check("get", await(client.get("s")), "value");
    check("get miss", await(client.get("none")), null);
    // In text each of these is a NOT_STORED.
    check("add", await(client.add("s", "x", 0)), ITEM_NOT_STORED);
    check("add new", await(client.add("added", "x", 0)), OK);
    check("replace", await(client.replace("s", "other", 0)), OK);
    check("replace miss", await(client.replace("none", "x", 0)), binary != null ? KEY_NOT_FOUND : ITEM_NOT_STORED);
    check("append", await(client.append("s", "+")), OK);
    check("prepend", await(client.prepend("s", "-")), OK);
    check("append miss", await(client.append("none", "x")), ITEM_NOT_STORED);
    check("prepend miss", await(client.prepend("none", "x")), ITEM_NOT_STORED);
    check("get joined", await(client.get("s")), "-other+");
    check("delete", await(client.delete("s")), OK);
    check("delete miss", await(client.delete("s")), KEY_NOT_FOUND);
    check("get deleted", await(client.get("s")), null);
    check("deleteAll", await(client.deleteAll("added")), OK);
    check("set of nothing", await(client.set("empty", "", 0)), OK);
    check("get of nothing", await(client.get("empty")), "");
    String longest = "k".repeat(250);
    check("set of the longest key", await(client.set(longest, "x", 0)), OK);
    check("get of the longest key", await(client.get(longest)), "x");
    check("flags", await(client.set("flags", "x", 0, 0x7ffffffe)), OK);
    check("get of flags", await(client.casGet("flags")).getFlags(), 0x7ffffffe);
  }

  private static void large() throws Exception {
    var builder = MemcacheClientBuilder.newByteArrayClient().withAddress(host, port).withMaxSetLength(4 << 20);
    secured(builder);
    MemcacheClient<byte[]> bytes = binary != null ? builder.connectBinary() : builder.connectAscii();
    ConnectFuture.connectFuture(bytes).toCompletableFuture().get(10, TimeUnit.SECONDS);
    byte[] large = new byte[900_000];
    new Random(1).nextBytes(large);
    check("set large", await(bytes.set("large", large, 0)), OK);
    check("get large", Arrays.equals(await(bytes.get("large")), large), true);
    try {
      check("a value too large", await(bytes.set("toolarge", new byte[2_000_000], 0)), VALUE_TOO_LARGE);
    } catch (ExecutionException refused) {
      // In text the refusal is an error of the server, for which this client has no status.
      check("a refusal in text", binary, null);
    }
    bytes.shutdown();
  }

  private static void many() throws Exception {
    Map<String, String> wanted = new HashMap<>();
    List<CompletionStage<MemcacheStatus>> sets = new ArrayList<>();
    for (int i = 0; i < 1000; i++) {
      wanted.put("many" + i, "value" + i);
      sets.add(client.set("many" + i, "value" + i, 0));
    }
    for (CompletionStage<MemcacheStatus> set : sets) {
      check("set of many", await(set), OK);
    }
    // A multi-get of folsom's takes 255 keys at most.
    List<String> keys = new ArrayList<>(wanted.keySet());
    for (List<String> part : List.of(keys.subList(0, 250), keys.subList(250, 500), keys.subList(500, 750), keys.subList(750, 1000))) {
      List<String> values = new ArrayList<>();
      part.forEach(key -> values.add(wanted.get(key)));
      check("get of many", await(client.get(part)), values);
    }
    check("get of one and a miss", await(client.get(List.of("many1", "none"))), Arrays.asList("value1", null));
    check("getAsMap", await(client.getAsMap(List.of("many1", "none", "many2"))), Map.of("many1", "value1", "many2", "value2"));
    check("get of misses", await(client.get(List.of("none", "none2"))), Collections.nCopies(2, null));
    List<GetResult<String>> seen = await(client.casGet(List.of("many7", "many8")));
    check("set with the cas of one of many", await(client.set("many7", "x", 0, seen.get(0).getCas())), OK);
    for (String key : keys) {
      check("delete of many", await(client.delete(key)), OK);
    }
    check("get of what is deleted", await(client.getAsMap(keys.subList(0, 200))), Map.of());
  }

  private static void cas() throws Exception {
    await(client.set("c", "first", 0));
    GetResult<String> seen = await(client.casGet("c"));
    check("casGet", seen.getValue(), "first");
    check("casGet miss", await(client.casGet("none")), null);
    check("set with a cas", await(client.set("c", "second", 0, seen.getCas())), OK);
    check("set with an old cas", await(client.set("c", "third", 0, seen.getCas())), KEY_EXISTS);
    check("get after cas", await(client.get("c")), "second");
    check("set with a cas at a miss", await(client.set("none", "x", 0, seen.getCas())), KEY_NOT_FOUND);
    if (binary == null) {
      return;
    }
    check("replace with an old cas", await(binary.replace("c", "x", 0, seen.getCas())), KEY_EXISTS);
    check("append with an old cas", await(binary.append("c", "x", seen.getCas())), KEY_EXISTS);
    check("prepend with its cas", await(binary.prepend("c", "-", await(client.casGet("c")).getCas())), OK);
    check("append with its cas", await(binary.append("c", "+", await(client.casGet("c")).getCas())), OK);
    check("get joined with cas", await(client.get("c")), "-second+");
    check("delete with an old cas", await(client.delete("c", seen.getCas())), KEY_EXISTS);
    check("delete with its cas", await(client.delete("c", await(client.casGet("c")).getCas())), OK);
  }

  private static void counting() throws Exception {
    if (client instanceof AsciiMemcacheClient<String> text) {
      await(client.set("i", "40", 0));
      check("incr", await(text.incr("i", 5)), 45L);
      check("decr", await(text.decr("i", 3)), 42L);
      check("decr below zero", await(text.decr("i", 100)), 0L);
      check("incr miss", await(text.incr("none", 1)), null);
      check("decr miss", await(text.decr("none", 1)), null);
      return;
    }
    check("incr initial", await(binary.incr("i", 5, 40, 0)), 40L);
    check("incr", await(binary.incr("i", 5, 40, 0)), 45L);
    check("decr", await(binary.decr("i", 3, 40, 0)), 42L);
    check("decr below zero", await(binary.decr("i", 100, 40, 0)), 0L);
    check("decr initial", await(binary.decr("j", 1, 7, 0)), 7L);
    check("incr of the largest", await(binary.incr("k", 1, -1L, 0)), -1L);
    check("incr wraps", await(binary.incr("k", 2, 0, 0)), 1L);
    await(client.set("text", "x", 0));
    // Folsom leaves a connection after this answer, so it gets one of its own.
    var others = MemcacheClientBuilder.newStringClient().withAddress(host, port);
    secured(others);
    var other = others.connectBinary();
    ConnectFuture.connectFuture(other).toCompletableFuture().get(10, TimeUnit.SECONDS);
    try {
      throw new Surprise("incr of text: got " + await(other.incr("text", 1, 0, 0)));
    } catch (ExecutionException refused) {
      check("get of the text", await(client.get("text")), "x");
    }
    other.shutdown();
  }

  private static void times() throws Exception {
    for (String key : List.of("t", "u", "v", "y")) {
      await(client.set(key, key, 2));
    }
    await(client.set("w", "w", (int) (System.currentTimeMillis() / 1000) + 100));
    check("touch", await(client.touch("u", 100)), OK);
    check("touch miss", await(client.touch("none", 100)), KEY_NOT_FOUND);
    if (binary != null) {
      check("getAndTouch", await(binary.getAndTouch("v", 100)), "v");
      check("getAndTouch miss", await(binary.getAndTouch("none", 100)), null);
      check("casGetAndTouch", await(binary.casGetAndTouch("y", 100)).getCas(), await(client.casGet("y")).getCas());
    } else {
      // Folsom has no gat in text.
      for (String key : List.of("v", "y")) {
        await(client.touch(key, 100));
      }
    }
    Thread.sleep(3200);
    Map<String, String> wanted = Map.of("u", "u", "v", "v", "w", "w", "y", "y");
    check("what is expired and what is not", await(client.getAsMap(List.of("t", "u", "v", "w", "y"))), wanted);
  }

  private static void wholeServer() throws Exception {
    var stats = await(client.getStats("")).values().iterator().next().getStats();
    for (String key : List.of("pid", "version", "curr_items", "cmd_get", "threads")) {
      check("getStats " + key, stats.containsKey(key), true);
    }
    check("getStats settings", await(client.getStats("settings")).values().iterator().next().getStats().containsKey("maxbytes"), true);
    if (binary != null) {
      await(binary.noop());
    }
    await(client.set("f", "x", 0));
    check("flushAll", await(client.flushAll(0)), OK);
    check("get flushed", await(client.get("f")), null);
  }

  private static <T> T await(CompletionStage<T> stage) throws Exception {
    return stage.toCompletableFuture().get(10, TimeUnit.SECONDS);
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

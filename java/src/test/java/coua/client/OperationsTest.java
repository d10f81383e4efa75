package coua.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Every operation, against each server. */
class OperationsTest {
  static List<String> servers() {
    return TestServers.all();
  }

  @ParameterizedTest
  @MethodSource("servers")
  void stores(String server) {
    try (CouaClient cache = CouaClient.open(server)) {
      cache.flush();
      assertNull(cache.get("k"));
      assertNull(cache.gets("k"));
      assertFalse(cache.replace("k", 0, "x"));
      assertFalse(cache.append("k", "x"));
      assertEquals(CasResponse.NOT_FOUND, cache.cas("k", 7, 0, "x"));
      assertTrue(cache.add("k", 0, "b"));
      assertFalse(cache.add("k", 0, "x"));
      assertTrue(cache.append("k", "c"));
      assertTrue(cache.prepend("k", "a"));
      CasValue<Object> seen = cache.gets("k");
      assertEquals("abc", seen.value());
      assertEquals(CasResponse.OK, cache.cas("k", seen.cas(), 0, "new"));
      assertEquals(CasResponse.EXISTS, cache.cas("k", seen.cas(), 0, "x"));
      assertEquals("new", cache.get("k"));
      assertTrue(cache.replace("k", 0, 42));
      assertEquals(42, cache.get("k"));
      assertTrue(cache.delete("k"));
      assertFalse(cache.delete("k"));
      cache.set("k", -1, "expired");
      assertNull(cache.get("k"));
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void expiriesAndNumbers(String server) {
    try (CouaClient cache = CouaClient.open(server)) {
      cache.flush();
      assertFalse(cache.touch("t", 100));
      assertNull(cache.getAndTouch("t", 100));
      cache.set("t", 0, "v");
      assertTrue(cache.touch("t", 100));
      assertEquals("v", cache.getAndTouch("t", 100).value());
      assertTrue(cache.touch("t", -1));
      assertNull(cache.get("t"));

      assertEquals(-1, cache.incr("n", 1));
      assertEquals(40, cache.incr("n", 1, 40, 0));
      assertEquals(42, cache.incr("n", 2, 40, 0));
      assertEquals(43, cache.incr("n", 1));
      assertEquals(3, cache.decr("n", 40));
      assertEquals(0, cache.decr("n", 40, 7, 0));
      assertEquals("0", ((String) cache.get("n")).trim());
      assertThrows(IllegalArgumentException.class, () -> cache.incr("n", -1));
      cache.set("n", 0, "text");
      var refused = assertThrows(CouaException.class, () -> cache.incr("n", 1));
      assertEquals(CouaException.Kind.REFUSED, refused.kind());
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void many(String server) {
    try (CouaClient cache = CouaClient.open(server)) {
      cache.flush();
      List<String> keys = new ArrayList<>();
      Map<String, Object> expected = new HashMap<>();
      for (int i = 0; i < 700; i++) {
        keys.add("many:" + i);
        if (i % 3 != 0) {
          cache.set("many:" + i, 0, i);
          expected.put("many:" + i, i);
        }
      }
      assertEquals(expected, cache.getBulk(keys));
      assertEquals(Map.of(), cache.getBulk(List.of()));
      assertThrows(CouaException.class, () -> cache.getBulk(List.of("many:1", "a b")));
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void inPlaceAndIntoAnArray(String server) {
    byte[] large = new byte[900_000];
    for (int i = 0; i < large.length; i++) {
      large[i] = (byte) (i * 31 + i / 251);
    }
    try (CouaClient cache = CouaClient.open(server)) {
      cache.set("large", 0, large, Transcoder.RAW);
      assertArrayEquals(large, cache.get("large", Transcoder.RAW));

      assertNull(cache.lease("large:none"));
      Lease lease = cache.lease("large");
      assertEquals(large.length, lease.bytes().byteSize());
      assertArrayEquals(large, lease.bytes().toArray(ValueLayout.JAVA_BYTE));
      assertTrue(lease.bytes().isReadOnly());
      cache.set("large", 0, "short");
      // It is this client's own copy.
      assertEquals(large[77], lease.bytes().get(ValueLayout.JAVA_BYTE, 77));
      lease.close();
      lease.close();
      assertThrows(IllegalStateException.class, () -> lease.bytes().get(ValueLayout.JAVA_BYTE, 77));

      byte[] into = new byte[3];
      assertEquals(5, cache.getInto("large", into));
      assertArrayEquals("sho".getBytes(StandardCharsets.US_ASCII), into);
      assertEquals(5, cache.getInto("large", new byte[9]));
      assertEquals(-1, cache.getInto("large:none", into));
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void servers(String server) {
    try (CouaClient cache = CouaClient.open(server)) {
      assertTrue(cache.getVersions().get(server).startsWith("1.6"), cache.getVersions().toString());
      assertTrue(Long.parseLong(cache.getStats().get(server).get("pid")) > 0);
      assertTrue(cache.getStats("settings").get(server).containsKey("maxbytes"));
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void withoutWaiting(String server) throws Exception {
    try (CouaClient client = CouaClient.open(server)) {
      AsyncClient cache = client.async();
      wait(cache.flush());
      wait(cache.set("a", 0, "b"));
      List<CompletableFuture<Object>> all = new ArrayList<>();
      for (int i = 0; i < 1000; i++) {
        all.add(cache.get("a"));
      }
      for (CompletableFuture<Object> one : all) {
        assertEquals("b", wait(one));
      }
      assertFalse(wait(cache.add("a", 0, "x")));
      assertTrue(wait(cache.replace("a", 0, "b")));
      assertTrue(wait(cache.append("a", "c")));
      assertTrue(wait(cache.prepend("a", "a")));
      CasValue<Object> seen = wait(cache.gets("a"));
      assertEquals("abc", seen.value());
      assertEquals(CasResponse.OK, wait(cache.cas("a", seen.cas(), 0, "d")));
      assertEquals(Map.of("a", "d"), wait(cache.getBulk(List.of("a", "none"))));
      assertEquals("d", wait(cache.getAndTouch("a", 100)).value());
      assertTrue(wait(cache.touch("a", 100)));
      assertArrayEquals("d".getBytes(StandardCharsets.US_ASCII), wait(cache.get("a", Transcoder.RAW)));
      assertEquals(-1, wait(cache.incr("number", 1)));
      assertEquals(5, wait(cache.incr("number", 1, 5, 0)));
      assertEquals(4, wait(cache.decr("number", 1)));
      assertEquals(3, wait(cache.decr("number", 1, 9, 0)));
      assertTrue(wait(cache.delete("a")));
      assertNull(wait(cache.get("a")));
    }
  }

  private static <T> T wait(CompletableFuture<T> future) throws Exception {
    return future.get(60, TimeUnit.SECONDS);
  }
}

package coua.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.io.ByteArrayOutputStream;
import java.io.ObjectInputFilter;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Date;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.zip.GZIPOutputStream;
import net.spy.memcached.MemcachedClient;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** What spymemcached writes is read, and the other way round. */
class SpymemcachedTest {
  record Own(String name) implements Serializable {}

  static List<String> servers() {
    return TestServers.all();
  }

  private static List<Object> objects() {
    List<Object> objects = new ArrayList<>(List.of("", "text", "\u00fcber \u20ac", "long ".repeat(10_000)));
    for (long number : new long[] {0, 1, -1, 127, 128, 255, 256, 65_536, Long.MAX_VALUE, Long.MIN_VALUE}) {
      objects.add(number);
      objects.add((int) number);
      objects.add((byte) number);
      objects.add(new Date(number));
      objects.add((double) number);
      objects.add((float) number);
    }
    objects.addAll(List.of(true, false, Double.NaN, -0.0, Float.MIN_VALUE));
    objects.addAll(List.of(new ArrayList<>(List.of("a", 1)), 'c', (short) 7));
    objects.add(new byte[0]);
    objects.add(new byte[] {0, -1, 7});
    objects.add(new byte[50_000]);
    return objects;
  }

  private static void same(Object expected, Object found) {
    if (expected instanceof byte[] bytes) {
      assertArrayEquals(bytes, (byte[]) found);
    } else {
      assertEquals(expected, found);
    }
  }

  @Test
  void theSameBytes() {
    var theirs = new net.spy.memcached.transcoders.SerializingTranscoder();
    var ours = new SerializingTranscoder();
    for (Object object : objects()) {
      net.spy.memcached.CachedData expected = theirs.encode(object);
      CachedData found = ours.encode(object);
      assertEquals(expected.getFlags(), found.flags(), object::toString);
      // What gzip writes of the same bytes is its own affair.
      if ((expected.getFlags() & 2) == 0) {
        assertArrayEquals(expected.getData(), found.bytes(), object::toString);
      }
      same(object, ours.decode(new CachedData(expected.getFlags(), expected.getData())));
      same(object, theirs.decode(new net.spy.memcached.CachedData(found.flags(), found.bytes(), 1 << 20)));
    }
  }

  @ParameterizedTest
  @MethodSource("servers")
  void throughTheServer(String server) throws Exception {
    MemcachedClient theirs = TestServers.spymemcached(server);
    try (CouaClient ours = CouaClient.open(server)) {
      for (Object object : objects()) {
        theirs.set("theirs", 0, object).get(60, TimeUnit.SECONDS);
        same(object, ours.get("theirs"));
        ours.set("ours", 0, object);
        same(object, theirs.get("ours"));
      }
    } finally {
      theirs.shutdown(10, TimeUnit.SECONDS);
    }
  }

  /** Both look for a key at the same server. */
  @Test
  void theSameServers() throws Exception {
    // The ring has names, and spymemcached looks them up for addresses.
    String servers = String.join(",", TestServers.all()).replace("127.0.0.1", "localhost");
    MemcachedClient theirs = TestServers.spymemcached(servers);
    try (CouaClient ours =
        CouaClient.builder(servers).distribution(Distribution.KETAMA_SPYMEMCACHED).open()) {
      for (int i = 0; i < 300; i++) {
        ours.set("ring:" + i, 0, i);
        assertEquals(i, theirs.get("ring:" + i));
      }
    } finally {
      theirs.shutdown(10, TimeUnit.SECONDS);
    }
  }

  @Test
  void onlyClassesThatAreAllowed() {
    CachedData stored = new SerializingTranscoder().encode(new Own("it"));
    var refused = assertThrows(CouaException.class, () -> new SerializingTranscoder().decode(stored));
    assertEquals(CouaException.Kind.UNREADABLE, refused.kind());
    var filter = ObjectInputFilter.Config.createFilter(Own.class.getName() + ";!*");
    assertEquals(new Own("it"), new SerializingTranscoder(filter, 1000).decode(stored));
  }

  @Test
  void whatCannotBeRead() throws Exception {
    var packed = new ByteArrayOutputStream();
    try (var stream = new GZIPOutputStream(packed)) {
      for (int i = 0; i < 65; i++) {
        stream.write(new byte[1 << 20]);
      }
    }
    List<CachedData> wrong =
        List.of(
            new CachedData(2, packed.toByteArray()),
            new CachedData(2, new byte[] {1, 2, 3}),
            new CachedData(1, new byte[] {1, 2, 3}),
            new CachedData(2 << 8, new byte[5]),
            new CachedData(3 << 8, new byte[9]),
            new CachedData(1 << 8, new byte[2]),
            new CachedData(9 << 8, new byte[1]));
    for (CachedData data : wrong) {
      var refused = assertThrows(CouaException.class, () -> new SerializingTranscoder().decode(data));
      assertEquals(CouaException.Kind.UNREADABLE, refused.kind(), "flags " + data.flags());
    }
  }
}

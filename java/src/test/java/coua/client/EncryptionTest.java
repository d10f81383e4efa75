package coua.client;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Servers with {@code -Z}. */
class EncryptionTest {
  private static final Path AUTHORITIES = Path.of(TestServers.property("coua.test.ca"));

  @Test
  void encrypted() throws Exception {
    byte[] large = new byte[700_000];
    new Random(1).nextBytes(large);
    for (String server : TestServers.property("coua.test.tls").split(",")) {
      try (CouaClient cache = CouaClient.builder(server).tls(AUTHORITIES).open()) {
        cache.set("tls", 0, "value");
        assertEquals("value", cache.get("tls"));
        cache.set("tls:large", 0, large);
        assertArrayEquals(large, (byte[]) cache.async().get("tls:large").get(60, TimeUnit.SECONDS));
        CompletableFuture<?>[] all = new CompletableFuture<?>[500];
        for (int i = 0; i < all.length; i++) {
          all[i] = cache.async().set("tls:" + i, 0, i);
        }
        CompletableFuture.allOf(all).get(60, TimeUnit.SECONDS);
        assertEquals(499, cache.get("tls:499"));
      }
      // In the clear it is not understood.
      try (CouaClient cache = CouaClient.open(server)) {
        assertThrows(CouaException.class, () -> cache.get("tls"));
      }
    }
  }

  @Test
  void nobodyVouches() throws Exception {
    String server = TestServers.property("coua.test.tls").split(",")[0];
    Path none = Files.createTempFile("a blank in", ".pem");
    try {
      var builder = CouaClient.builder(server).tls(none);
      var empty = assertThrows(CouaException.class, builder::open);
      assertEquals(CouaException.Kind.INVALID, empty.kind());
      assertTrue(empty.getMessage().contains("PEM"), empty.getMessage());
      var missing = assertThrows(CouaException.class, CouaClient.builder(server).tls(Path.of("/no where"))::open);
      assertTrue(missing.getMessage().contains("`/no where` cannot be read"), missing.getMessage());
    } finally {
      Files.delete(none);
    }
    // The certificate is for 127.0.0.1 alone.
    String named = server.replace("127.0.0.1", "localhost");
    try (CouaClient cache = CouaClient.builder(named).tls(AUTHORITIES).open()) {
      var stranger = assertThrows(CouaException.class, () -> cache.set("k", 0, "v"));
      assertEquals(CouaException.Kind.NOT_SENT, stranger.kind());
      assertTrue(stranger.getMessage().contains("certificate"), stranger.getMessage());
    }
  }
}

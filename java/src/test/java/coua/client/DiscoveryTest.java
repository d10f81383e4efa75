package coua.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** Servers that are found: {@code coua.test.cluster} answers with what {@code coua.test.cluster.file} says. */
class DiscoveryTest {
  private static final Duration OFTEN = Duration.ofMillis(100);

  private static void write(int version, List<String> servers) throws Exception {
    var text = new StringBuilder().append(version).append('\n');
    for (String server : servers) {
      text.append(server.replace(":", "||")).append('\n');
    }
    Path file = Path.of(TestServers.property("coua.test.cluster.file"));
    Path fresh = file.resolveSibling("fresh");
    Files.writeString(fresh, text);
    Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
  }

  private static CouaClient.Builder builder() {
    return CouaClient.builder(TestServers.property("coua.test.cluster")).discovery(Discovery.CLUSTER, OFTEN);
  }

  private static void until(CouaClient cache, List<String> servers) throws Exception {
    for (int turn = 0; turn < 600; turn++) {
      if (cache.getVersions().keySet().equals(Set.copyOf(servers))) {
        return;
      }
      Thread.sleep(100);
    }
    assertEquals(Set.copyOf(servers), cache.getVersions().keySet());
  }

  @Test
  void changes() throws Exception {
    List<String> all = TestServers.all();
    write(10, all.subList(0, 1));
    try (CouaClient cache = builder().open()) {
      until(cache, all.subList(0, 1));
      cache.set("found", 0, "v");
      assertEquals("v", cache.async().get("found").get(60, TimeUnit.SECONDS));
      write(11, all);
      until(cache, all);
      for (int i = 0; i < 200; i++) {
        cache.async().set("found:" + i, 0, i).get(60, TimeUnit.SECONDS);
      }
      // What has a key is the same for both halves of the client, as soon as both know the servers.
      for (int turn = 0; turn < 600 && !areFound(cache); turn++) {
        Thread.sleep(100);
      }
      assertTrue(areFound(cache));
    }
  }

  private static boolean areFound(CouaClient cache) throws Exception {
    for (int i = 0; i < 200; i++) {
      cache.async().set("found:" + i, 0, i).get(60, TimeUnit.SECONDS);
      if (!Integer.valueOf(i).equals(cache.get("found:" + i))) {
        return false;
      }
    }
    return true;
  }

  @Test
  void nobodyTells() {
    // memcached has no list.
    var builder = CouaClient.builder(TestServers.all().getLast()).discovery(Discovery.CLUSTER, OFTEN);
    var none = assertThrows(CouaException.class, builder::open);
    assertEquals("no list of servers", none.getMessage().substring(none.getMessage().indexOf("no list")));
    var nobody = CouaClient.builder("127.0.0.1:1").discovery(Discovery.CLUSTER, OFTEN);
    assertEquals(CouaException.Kind.NOT_SENT, assertThrows(CouaException.class, nobody::open).kind());
    try (CouaClient cache = CouaClient.builder(TestServers.all().getFirst()).discovery(Discovery.NAMES, OFTEN).open()) {
      cache.set("named", 0, "v");
      assertEquals("v", cache.get("named"));
    }
  }
}

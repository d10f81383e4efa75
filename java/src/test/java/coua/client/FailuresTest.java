package coua.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Servers that are not there or do not answer, and clients that end. */
class FailuresTest {
  /** Port 1 of this machine refuses. */
  private static final String NOBODY = "127.0.0.1:1";

  @Test
  void nobodyThere() throws Exception {
    try (CouaClient cache = CouaClient.open(NOBODY)) {
      var get = assertThrows(CouaException.class, () -> cache.get("k"));
      assertEquals(CouaException.Kind.NOT_SENT, get.kind());
      var set = assertThrows(CouaException.class, () -> cache.set("k", 0, "v"));
      assertEquals(CouaException.Kind.NOT_SENT, set.kind());
      var late = assertThrows(ExecutionException.class, () -> cache.async().get("k").get(60, TimeUnit.SECONDS));
      assertInstanceOf(CouaException.class, late.getCause());
      assertEquals(Map.of(), cache.getVersions());
    }
  }

  @Test
  void noAnswer() throws Exception {
    try (var server = new TestServers.Mute();
        CouaClient cache =
            CouaClient.builder(server.address()).operationTimeout(Duration.ofMillis(200)).open()) {
      var get = assertThrows(CouaException.class, () -> cache.get("k"));
      assertEquals(CouaException.Kind.INTERRUPTED, get.kind());
      assertTrue(get.isTimeout());
      var set = assertThrows(CouaException.class, () -> cache.set("k", 0, "v"));
      assertEquals(CouaException.Kind.OUTCOME_UNKNOWN, set.kind());
      assertTrue(set.isTimeout());
    }
  }

  /** With one server gone, its keys fail at once or go to the other one. */
  @Test
  void failureModes() {
    String there = TestServers.all().getFirst();
    for (FailureMode mode : FailureMode.values()) {
      try (CouaClient cache = CouaClient.builder(there + "," + NOBODY).failureMode(mode).open()) {
        int failures = 0;
        for (int i = 0; i < 100; i++) {
          try {
            cache.set("failure:" + i, 0, i);
          } catch (CouaException failure) {
            assertEquals(CouaException.Kind.NOT_SENT, failure.kind());
            failures++;
          }
        }
        boolean isMost = failures > 10;
        assertEquals(mode == FailureMode.FAIL_FAST, isMost, mode + ": " + failures);
      }
    }
  }

  @Test
  void wrongSettingsAndKeys() {
    assertEquals(
        CouaException.Kind.INVALID,
        assertThrows(CouaException.class, () -> CouaClient.open("a b")).kind());
    var builder = CouaClient.builder(NOBODY).operationTimeout(Duration.ZERO);
    var wrong = assertThrows(CouaException.class, builder::open);
    assertTrue(wrong.getMessage().contains("operation_timeout_ms"), wrong.getMessage());
    try (CouaClient cache = CouaClient.open(TestServers.all().getFirst())) {
      for (String key : List.of("", "a b", "a\n", "k".repeat(251), "k".repeat(100_000))) {
        var refused = assertThrows(CouaException.class, () -> cache.get(key));
        assertEquals(CouaException.Kind.INVALID, refused.kind());
      }
      assertNull(cache.get("k".repeat(250)));
    }
  }

  /** Closing waits for what is under way; what comes later is told so. */
  @Test
  void closedWhileInUse() throws Exception {
    for (int round = 0; round < 5; round++) {
      CouaClient cache = CouaClient.open(TestServers.all().getFirst());
      cache.set("closing", 0, "v");
      AsyncClient async = cache.async();
      var done = new AtomicLong();
      var surprise = new AtomicReference<Throwable>();
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < 4; i++) {
        threads.add(
            Thread.ofPlatform()
                .start(
                    () -> {
                      try {
                        while (true) {
                          assertEquals("v", cache.get("closing"));
                          done.incrementAndGet();
                        }
                      } catch (IllegalStateException closed) {
                        // That is how it ends.
                      } catch (Throwable other) {
                        surprise.set(other);
                      }
                    }));
      }
      while (done.get() < 20 && surprise.get() == null) {
        Thread.sleep(1);
      }
      cache.close();
      cache.close();
      for (Thread thread : threads) {
        thread.join(60_000);
        assertTrue(!thread.isAlive());
      }
      assertNull(surprise.get());
      assertThrows(IllegalStateException.class, () -> cache.get("closing"));
      assertThrows(IllegalStateException.class, cache::async);
      var late = assertThrows(ExecutionException.class, () -> async.get("k").get(60, TimeUnit.SECONDS));
      assertEquals(CouaException.Kind.NOT_SENT, ((CouaException) late.getCause()).kind());
    }
  }
}

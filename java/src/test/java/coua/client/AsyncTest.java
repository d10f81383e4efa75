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
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

/** Futures: their results, their threads, and how they end. */
class AsyncTest {
  private static <T> T got(CompletableFuture<T> future) throws Exception {
    return future.get(60, TimeUnit.SECONDS);
  }

  @Test
  void everyOperation() throws Exception {
    for (String server : TestServers.all()) {
      try (CouaClient cache = CouaClient.open(server)) {
        AsyncClient async = cache.async();
        got(async.set("async:a", 0, "one"));
        assertEquals("one", got(async.get("async:a")));
        assertEquals("one", cache.get("async:a"));
        assertNull(got(async.get("async:none")));
        CasValue<Object> seen = got(async.gets("async:a"));
        assertEquals(CasResponse.OK, got(async.cas("async:a", seen.cas(), 0, "two")));
        assertEquals(CasResponse.EXISTS, got(async.cas("async:a", seen.cas(), 0, "three")));
        assertEquals(CasResponse.NOT_FOUND, got(async.cas("async:none", 1, 0, "x")));
        assertEquals(false, got(async.add("async:a", 0, "x")));
        assertEquals(true, got(async.replace("async:a", 0, "b")));
        assertEquals(true, got(async.append("async:a", "c")));
        assertEquals(true, got(async.prepend("async:a", "a")));
        assertEquals("abc", got(async.getAndTouch("async:a", 100)).value());
        assertEquals(true, got(async.touch("async:a", 0)));
        assertEquals(-1L, got(async.incr("async:n", 1)));
        assertEquals(5L, got(async.incr("async:n", 1, 5, 0)));
        assertEquals(7L, got(async.incr("async:n", 2)));
        assertEquals(3L, got(async.decr("async:n", 4)));
        assertEquals(3L, got(async.decr("async:n", 1, 9, 0)) + 1);
        assertEquals(true, got(async.delete("async:n")));
        assertEquals(false, got(async.delete("async:n")));
        assertEquals(
            Map.of("async:a", "abc"), got(async.getBulk(List.of("async:none", "async:a"))));
        assertEquals(Map.of(), got(async.getBulk(List.of())));
        byte[] large = new byte[900_000];
        java.util.Arrays.fill(large, (byte) 7);
        got(async.set("async:large", 0, large));
        org.junit.jupiter.api.Assertions.assertArrayEquals(large, (byte[]) got(async.get("async:large")));
        var wrong = assertThrows(ExecutionException.class, () -> got(async.get("a b")));
        assertEquals(CouaException.Kind.INVALID, ((CouaException) wrong.getCause()).kind());
        var text = assertThrows(ExecutionException.class, () -> got(async.incr("async:a", 1)));
        assertEquals(CouaException.Kind.REFUSED, ((CouaException) text.getCause()).kind());
        assertThrows(IllegalArgumentException.class, () -> async.incr("async:a", -1));
      }
    }
  }

  /** As many as may be under way, of four threads, each answered with what was asked for. */
  @Test
  void manyAtOnce() throws Exception {
    for (String server : TestServers.all()) {
      try (CouaClient cache = CouaClient.builder(server).operationTimeout(Duration.ofSeconds(60)).open()) {
        AsyncClient async = cache.async();
        for (int i = 0; i < 500; i++) {
          cache.set("many:" + i, 0, "value " + i);
        }
        int before = Thread.activeCount();
        List<Thread> threads = new ArrayList<>();
        var wrong = new ConcurrentLinkedQueue<Throwable>();
        for (int thread = 0; thread < 4; thread++) {
          threads.add(
              Thread.ofPlatform()
                  .start(
                      () -> {
                        try {
                          List<CompletableFuture<Object>> answers = new ArrayList<>();
                          for (int i = 0; i < 4000; i++) {
                            answers.add(async.get("many:" + i % 500));
                          }
                          for (int i = 0; i < 4000; i++) {
                            assertEquals("value " + i % 500, got(answers.get(i)));
                          }
                        } catch (Throwable cause) {
                          wrong.add(cause);
                        }
                      }));
        }
        assertTrue(Thread.activeCount() <= before + 4, "it is one thread that makes them all");
        for (Thread thread : threads) {
          thread.join();
        }
        assertEquals(List.of(), List.copyOf(wrong));
      }
    }
  }

  /** Further ones than there is room for fail at once, and what is under way ends with its time. */
  @Test
  void tooMany() throws Exception {
    try (var server = new TestServers.Mute();
        CouaClient cache = CouaClient.builder(server.address()).operationTimeout(Duration.ofMillis(500)).open()) {
      List<CompletableFuture<Object>> answers = new ArrayList<>();
      int refused = 0;
      for (int i = 0; i < 16_384 + 100; i++) {
        answers.add(cache.async().get("k"));
      }
      for (var answer : answers) {
        var failure = assertThrows(ExecutionException.class, () -> got(answer));
        var cause = assertInstanceOf(CouaException.class, failure.getCause());
        refused += cause.kind() == CouaException.Kind.NOT_SENT && !cause.isTimeout() ? 1 : 0;
      }
      assertTrue(refused > 0);
    }
  }

  /** Whoever waits on the thread that completes is told so, and does not wait for good. */
  @Test
  void waitingWhereItIsCompleted() throws Exception {
    try (CouaClient cache = CouaClient.open(TestServers.all().getFirst())) {
      AsyncClient async = cache.async();
      got(async.set("chain", 0, "v"));
      // The chain is made before the first operation can end: the second one begins on the completing thread.
      CompletableFuture<Object> chained = async.get("chain").thenCompose(value -> async.get("chain"));
      assertEquals("v", got(chained));
      var gate = new CompletableFuture<Void>();
      var first = async.get("chain").thenCombine(gate, (value, open) -> value);
      gate.complete(null);
      assertEquals("v", got(first));
      for (int i = 0; i < 200; i++) {
        var waits = async.set("chain", 0, "v".repeat(100_000)).thenApply(done -> async.get("chain").join());
        try {
          // It had ended before anything depended on it.
          assertEquals(100_000, got(waits).toString().length());
        } catch (ExecutionException failure) {
          assertInstanceOf(IllegalStateException.class, failure.getCause());
          return;
        }
      }
      throw new AssertionError("200 operations ended at once");
    }
  }

  @Test
  void cancelledAndClosed() throws Exception {
    CouaClient cache = CouaClient.open(TestServers.all().getFirst());
    AsyncClient async = cache.async();
    for (int i = 0; i < 100; i++) {
      async.get("cancelled").cancel(true);
    }
    var answers = new ArrayList<CompletableFuture<Void>>();
    for (int i = 0; i < 1000; i++) {
      answers.add(async.set("closing:" + i, 0, i));
    }
    cache.close();
    for (var answer : answers) {
      assertTrue(answer.isDone());
      assertNull(answer.join());
    }
    var late = assertThrows(CompletionException.class, () -> async.get("k").join());
    assertEquals(CouaException.Kind.NOT_SENT, ((CouaException) late.getCause()).kind());
    // From the completing thread too.
    CouaClient other = CouaClient.open(TestServers.all().getFirst());
    got(other.async().get("k").thenAccept(value -> other.close()));
    other.close();
  }

  @Test
  void interruptedWhileClosing() throws Exception {
    try (var server = new TestServers.Mute()) {
      CouaClient cache = CouaClient.builder(server.address()).operationTimeout(Duration.ofSeconds(600)).open();
      var answer = cache.async().set("k", 0, "v");
      Thread.currentThread().interrupt();
      cache.close();
      assertTrue(Thread.interrupted());
      var given = assertThrows(CompletionException.class, answer::join);
      assertEquals(CouaException.Kind.OUTCOME_UNKNOWN, ((CouaException) given.getCause()).kind());
    }
  }

  @Test
  void observers() throws Exception {
    var opened = new AtomicInteger();
    var lost = new AtomicInteger();
    var told = new ConcurrentLinkedQueue<String>();
    var observer =
        new ConnectionObserver() {
          @Override
          public void connectionEstablished(String server) {
            told.add(server);
            opened.incrementAndGet();
            throw new AssertionError("nobody hears it");
          }

          @Override
          public void connectionLost(String server) {
            lost.incrementAndGet();
          }

          @Override
          public void serverEjected(String server) {
            told.add("ejected " + server);
          }

          @Override
          public void serverReturned(String server) {
            told.add("returned " + server);
          }
        };
    try (var server = new TestServers.Mute()) {
      try (CouaClient cache =
          CouaClient.builder(server.address())
              .operationTimeout(Duration.ofMillis(100))
              .observer(observer)
              .open()) {
        for (int i = 0; i < 3; i++) {
          assertThrows(CouaException.class, () -> cache.get("k"));
        }
        assertEquals(2, opened.get());
        assertEquals(2, lost.get());
        assertEquals(
            List.of(server.address(), server.address(), "ejected " + server.address()), List.copyOf(told));
        assertThrows(ExecutionException.class, () -> got(cache.async().get("k")));
        assertEquals(3, opened.get());
      }
    }
    String there = TestServers.all().getFirst();
    try (CouaClient cache = CouaClient.builder(there).observer(observer).open()) {
      cache.get("k");
      assertEquals(4, opened.get());
      assertTrue(told.contains(there));
    }
  }
}

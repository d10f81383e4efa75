package coua.client.benchmark;

import coua.client.CouaClient;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import net.rubyeye.xmemcached.XMemcachedClientBuilder;

/** One of the clients, as the benchmarks use them all. */
interface Contender extends AutoCloseable {
  Object get(String key) throws Exception;

  void set(String key, Object value) throws Exception;

  Map<String, ?> getBulk(Collection<String> keys) throws Exception;

  /** Begins a get; null where the client has none that does not wait. */
  Future<?> begin(String key) throws Exception;

  static Contender of(String name, String host, int port) throws Exception {
    return switch (name) {
      case "coua" -> new Coua(host + ":" + port);
      case "spymemcached" -> new Spymemcached(new InetSocketAddress(host, port));
      case "xmemcached" -> new Xmemcached(new InetSocketAddress(host, port));
      default -> throw new IllegalArgumentException(name);
    };
  }

  /** This repository's. */
  final class Coua implements Contender {
    private final CouaClient client;

    Coua(String server) {
      client = CouaClient.open(server);
    }

    @Override
    public Object get(String key) {
      return client.get(key);
    }

    @Override
    public void set(String key, Object value) {
      client.set(key, 0, value);
    }

    @Override
    public Map<String, ?> getBulk(Collection<String> keys) {
      return client.getBulk(keys);
    }

    @Override
    public CompletableFuture<?> begin(String key) {
      return client.async().get(key);
    }

    @Override
    public void close() {
      client.close();
    }
  }

  /** spymemcached 2.12.3 with its defaults: text, one connection. */
  final class Spymemcached implements Contender {
    private static final java.util.logging.Logger LOGGER = java.util.logging.Logger.getLogger("net.spy.memcached");

    private final net.spy.memcached.MemcachedClient client;

    Spymemcached(InetSocketAddress server) throws Exception {
      System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
      LOGGER.setLevel(java.util.logging.Level.OFF);
      client = new net.spy.memcached.MemcachedClient(server);
    }

    @Override
    public Object get(String key) {
      return client.get(key);
    }

    @Override
    public void set(String key, Object value) throws Exception {
      if (!client.set(key, 0, value).get()) {
        throw new IllegalStateException("it is not stored");
      }
    }

    @Override
    public Map<String, ?> getBulk(Collection<String> keys) {
      return client.getBulk(keys);
    }

    @Override
    public Future<?> begin(String key) {
      return client.asyncGet(key);
    }

    @Override
    public void close() {
      client.shutdown();
    }
  }

  /** XMemcached 2.4.8 with its defaults: text, one connection. */
  final class Xmemcached implements Contender {
    private final net.rubyeye.xmemcached.MemcachedClient client;

    Xmemcached(InetSocketAddress server) throws Exception {
      client = new XMemcachedClientBuilder(List.of(server)).build();
      client.setOpTimeout(5000);
    }

    @Override
    public Object get(String key) throws Exception {
      return client.get(key);
    }

    @Override
    public void set(String key, Object value) throws Exception {
      if (!client.set(key, 0, value)) {
        throw new IllegalStateException("it is not stored");
      }
    }

    @Override
    public Map<String, ?> getBulk(Collection<String> keys) throws Exception {
      return client.get(keys);
    }

    @Override
    public Future<?> begin(String key) {
      return null;
    }

    @Override
    public void close() throws Exception {
      client.shutdown();
    }
  }
}

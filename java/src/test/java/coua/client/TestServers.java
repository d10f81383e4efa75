package coua.client;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.List;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.DefaultConnectionFactory;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.KetamaNodeKeyFormatter;
import net.spy.memcached.KetamaNodeLocator;
import net.spy.memcached.MemcachedClient;
import net.spy.memcached.MemcachedNode;
import net.spy.memcached.NodeLocator;

/** The servers to test against, and spymemcached as a client of theirs. */
final class TestServers {
  /** Held, for the level is forgotten with the logger. */
  private static final java.util.logging.Logger LOGGER = java.util.logging.Logger.getLogger("net.spy.memcached");

  static {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    LOGGER.setLevel(java.util.logging.Level.OFF);
  }

  private TestServers() {}

  /** HOST:PORT of each: {@code -Dcoua.test.servers=HOST:PORT,HOST:PORT}. */
  static List<String> all() {
    return List.of(property("coua.test.servers").split(","));
  }

  /** What {@code -DNAME=} says; {@code cargo xtask test java-client} says it. */
  static String property(String name) {
    String value = System.getProperty(name, "");
    if (value.isEmpty()) {
      throw new AssertionError("-D" + name + "= is needed: see cargo xtask test java-client");
    }
    return value;
  }

  /** spymemcached, with the ring that libmemcached has. */
  static MemcachedClient spymemcached(String servers) throws IOException {
    ConnectionFactory settings =
        new DefaultConnectionFactory() {
          @Override
          public NodeLocator createLocator(List<MemcachedNode> nodes) {
            return new KetamaNodeLocator(
                nodes, DefaultHashAlgorithm.KETAMA_HASH, KetamaNodeKeyFormatter.Format.LIBMEMCACHED,
                new java.util.HashMap<InetSocketAddress, Integer>());
          }

          @Override
          public long getOperationTimeout() {
            return 20_000;
          }
        };
    var addresses =
        List.of(servers.split(",")).stream()
            .map(server -> server.split(":"))
            .map(words -> new InetSocketAddress(words[0], Integer.parseInt(words[1])))
            .toList();
    return new MemcachedClient(settings, addresses);
  }

  /** A server that answers a new client, and nothing that it asks. */
  static final class Mute implements AutoCloseable {
    private final ServerSocket listener = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());

    Mute() throws IOException {
      Thread.ofPlatform().daemon().start(this::listen);
    }

    String address() {
      return "127.0.0.1:" + listener.getLocalPort();
    }

    private void listen() {
      while (true) {
        try {
          Socket socket = listener.accept();
          Thread.ofPlatform().daemon().start(() -> serve(socket));
        } catch (IOException closed) {
          return;
        }
      }
    }

    private static void serve(Socket socket) {
      try (socket) {
        var input = new BufferedReader(new InputStreamReader(socket.getInputStream(), StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
          if (line.equals("mn")) {
            socket.getOutputStream().write("MN\r\n".getBytes(StandardCharsets.US_ASCII));
          }
        }
      } catch (IOException gone) {
        // The client has enough of it.
      }
    }

    @Override
    public void close() throws IOException {
      listener.close();
    }
  }
}

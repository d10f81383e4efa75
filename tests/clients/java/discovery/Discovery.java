// AWS's client and XMemcached's find their servers by auto-discovery: HOST PORT of a server with `-o cluster_config=FILE`,
// HOST PORT of a second one, and FILE, which is rewritten on the way. Exits with 1 at the first surprise.

import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.concurrent.Callable;
import net.rubyeye.xmemcached.aws.AWSElasticCacheClient;
import net.spy.memcached.BinaryConnectionFactory;
import net.spy.memcached.ClientMode;
import net.spy.memcached.ConnectionFactory;
import net.spy.memcached.DefaultConnectionFactory;
import net.spy.memcached.MemcachedClient;

public final class Discovery {
  private static final long OFTEN_MS = 500;

  private static String first;
  private static String second;
  private static Path file;
  private static int version = 0;

  public static void main(String[] arguments) throws Exception {
    System.setProperty("net.spy.log.LoggerImpl", "net.spy.memcached.compat.log.SunLogger");
    java.util.logging.Logger.getLogger("net.spy.memcached").setLevel(java.util.logging.Level.OFF);
    var endpoint = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
    first = arguments[0] + "|" + arguments[0] + "|" + arguments[1];
    second = arguments[2] + "|" + arguments[2] + "|" + arguments[3];
    file = Path.of(arguments[4]);
    try {
      amazon("text", endpoint, new Text());
      amazon("binary", endpoint, new Binary());
      xmemcached(endpoint);
      System.out.println("discovery: all well");
      System.exit(0);
    } catch (Surprise surprise) {
      System.out.println("discovery: " + surprise.getMessage());
      System.exit(1);
    }
  }

  private static final class Text extends DefaultConnectionFactory {
    Text() {
      super(ClientMode.Dynamic);
    }

    @Override
    public long getDynamicModePollingInterval() {
      return OFTEN_MS;
    }
  }

  private static final class Binary extends BinaryConnectionFactory {
    Binary() {
      super(ClientMode.Dynamic);
    }

    @Override
    public long getDynamicModePollingInterval() {
      return OFTEN_MS;
    }
  }

  private static void amazon(String name, InetSocketAddress endpoint, ConnectionFactory settings) throws Exception {
    tell(first);
    var client = new MemcachedClient(settings, java.util.List.of(endpoint));
    until(name + ": one server", () -> client.getAvailableNodeEndPoints().size() == 1);
    check(name + ": set", client.set("aws:" + name, 0, "v").get(), true);
    check(name + ": get", client.get("aws:" + name), "v");
    tell(first, second);
    until(name + ": two servers", () -> client.getAvailableNodeEndPoints().size() == 2);
    for (int i = 0; i < 100; i++) {
      check(name + ": set", client.set("aws:" + i, 0, i).get(), true);
      check(name + ": get", client.get("aws:" + i), i);
    }
    check(name + ": versions", client.getVersions().size(), 2);
    tell(second);
    until(name + ": the other server", () -> client.getAllNodeEndPoints().size() == 1);
    client.shutdown();
  }

  private static void xmemcached(InetSocketAddress endpoint) throws Exception {
    tell(first);
    var client = new AWSElasticCacheClient(endpoint, OFTEN_MS);
    client.setOpTimeout(10_000);
    check("xmemcached: version", client.getConfig().getVersion(), version);
    check("xmemcached: servers", client.getConfig().getNodeList().size(), 1);
    check("xmemcached: set", client.set("x", 0, "v"), true);
    check("xmemcached: get", client.get("x"), "v");
    tell(first, second);
    until("xmemcached: two servers", () -> client.getAvailableServers().size() == 2);
    for (int i = 0; i < 100; i++) {
      check("xmemcached: set", client.set("x:" + i, 0, i), true);
      check("xmemcached: get", client.get("x:" + i), i);
    }
    client.shutdown();
  }

  /** Writes the file, and waits until the server has seen it. */
  private static void tell(String... servers) throws Exception {
    version++;
    Path fresh = file.resolveSibling("fresh");
    Files.writeString(fresh, version + "\n" + String.join("\n", servers) + "\n");
    Files.move(fresh, file, StandardCopyOption.ATOMIC_MOVE);
    String[] endpoint = first.split("\\|");
    String expected = "\n" + version + "\n" + String.join(" ", servers) + "\n\r\n";
    until("version " + version, () -> asked(endpoint[0], Integer.parseInt(endpoint[2])).contains(expected));
  }

  private static String asked(String host, int port) throws Exception {
    try (var socket = new java.net.Socket(host, port)) {
      socket.getOutputStream().write("config get cluster\r\nquit\r\n".getBytes());
      return new String(socket.getInputStream().readAllBytes());
    }
  }

  private static void until(String what, Callable<Boolean> holds) throws Exception {
    for (int turn = 0; turn < 600; turn++) {
      if (holds.call()) {
        return;
      }
      Thread.sleep(100);
    }
    throw new Surprise(what + ": not within a minute");
  }

  private static void check(String what, Object found, Object expected) throws Surprise {
    if (!java.util.Objects.equals(found, expected)) {
      throw new Surprise(what + ": " + found + " instead of " + expected);
    }
  }

  private static final class Surprise extends Exception {
    Surprise(String message) {
      super(message);
    }
  }
}

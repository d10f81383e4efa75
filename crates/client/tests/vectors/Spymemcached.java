// Prints which server spymemcached chooses for each of 20,000 keys, one byte a key: '0' + the server's index.
// Use: java -cp spymemcached.jar Spymemcached.java ketama HOST:PORT:WEIGHT...
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.spy.memcached.DefaultHashAlgorithm;
import net.spy.memcached.KetamaNodeLocator;
import net.spy.memcached.MemcachedNode;
import net.spy.memcached.KetamaNodeKeyFormatter;

public class Spymemcached {
    public static void main(String[] args) {
        List<MemcachedNode> nodes = new ArrayList<>();
        Map<InetSocketAddress, Integer> weights = new HashMap<>();
        boolean weighted = false;
        for (int i = 1; i < args.length; i++) {
            String[] parts = args[i].split(":");
            InetSocketAddress address = InetSocketAddress.createUnresolved(parts[0], Integer.parseInt(parts[1]));
            weights.put(address, Integer.parseInt(parts[2]));
            weighted |= !parts[2].equals("1");
            nodes.add((MemcachedNode) Proxy.newProxyInstance(Spymemcached.class.getClassLoader(),
                new Class<?>[] {MemcachedNode.class}, (proxy, method, arguments) -> switch (method.getName()) {
                    case "getSocketAddress" -> address;
                    case "hashCode" -> System.identityHashCode(proxy);
                    case "equals" -> proxy == arguments[0];
                    case "toString" -> address.toString();
                    default -> throw new UnsupportedOperationException(method.getName());
                }));
        }
        KetamaNodeLocator locator = new KetamaNodeLocator(nodes, DefaultHashAlgorithm.KETAMA_HASH,
            KetamaNodeKeyFormatter.Format.LIBMEMCACHED, weighted ? weights : new HashMap<>());
        StringBuilder out = new StringBuilder();
        for (int i = 0; i < 20000; i++) {
            String key = i < 10000 ? "key-" + i : "schl\u00fcssel:" + i;
            out.append((char) ('0' + nodes.indexOf(locator.getPrimary(key))));
        }
        System.out.print(out);
    }
}

"""A client of nutcracker, which spreads the keys over two servers: HOST PORT, then the ports of the two servers."""

import sys

from pymemcache.client.base import Client


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"nutcracker: {what}: got {got!r}, wanted {wanted!r}")


def main():
    host, port, *servers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    client = Client((host, port), timeout=10, no_delay=True)
    values = {f"key{i}": b"value%d" % i for i in range(1000)}
    for key, value in values.items():
        check("set", client.set(key, value, noreply=False), True)
    # One multi-get is cut in two by the proxy and its answers are put together again.
    check("get_many", client.get_many(list(values)), values)
    check("get miss", client.get("none"), None)
    check("add", client.add("key1", b"x", noreply=False), False)
    check("replace", client.replace("key1", b"x", noreply=False), True)
    check("append", client.append("key1", b"y", noreply=False), True)
    check("prepend", client.prepend("key1", b"w", noreply=False), True)
    check("joined", client.get("key1"), b"wxy")
    value, token = client.gets("key1")
    check("cas", client.cas("key1", b"5", token, noreply=False), True)
    check("cas again", client.cas("key1", b"6", token, noreply=False), False)
    check("incr", client.incr("key1", 3), 8)
    check("decr", client.decr("key1", 1), 7)
    check("touch", client.touch("key1", 100, noreply=False), True)
    check("delete", client.delete("key1", noreply=False), True)
    check("delete miss", client.delete("key1", noreply=False), False)
    large = b"0123456789abcdef" * 30_000
    check("set large", client.set("large", large, noreply=False), True)
    check("get large", client.get("large"), large)
    shares = [int(Client((host, server)).stats()[b"curr_items"]) for server in servers]
    check("items of both servers", sum(shares), 1000)
    if min(shares) < 100:
        sys.exit(f"nutcracker: one server has nearly nothing: {shares}")
    print(f"nutcracker: all well, shares {shares}")


main()

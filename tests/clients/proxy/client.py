"""A client of a proxy that spreads keys over two servers: NAME of the proxy, HOST PORT, then the two servers' ports.

NAME is nutcracker, or memcached for memcached's own proxy, which also takes the meta commands.
"""

import socket
import sys

from pymemcache.client.base import Client

NAME = sys.argv[1]


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"{NAME} as a proxy: {what}: got {got!r:.300}, wanted {wanted!r:.300}")


def classic(client):
    values = {f"key{i}": b"value%d" % i for i in range(1000)}
    for key, value in values.items():
        check("set", client.set(key, value, noreply=False), True)
    # One multi-get is cut in two by the proxy and its answers are put together again.
    check("get_many", client.get_many(list(values)), values)
    check("get miss", client.get("none"), None)
    check("add", client.add("key1", b"x", noreply=False), False)
    check("replace", client.replace("key1", b"x", noreply=False), True)
    check("replace miss", client.replace("none", b"x", noreply=False), False)
    check("append", client.append("key1", b"y", noreply=False), True)
    check("prepend", client.prepend("key1", b"w", noreply=False), True)
    check("joined", client.get("key1"), b"wxy")
    value, token = client.gets("key1")
    check("gets", value, b"wxy")
    check("cas", client.cas("key1", b"5", token, noreply=False), True)
    check("cas again", client.cas("key1", b"6", token, noreply=False), False)
    check("incr", client.incr("key1", 3), 8)
    check("decr", client.decr("key1", 1), 7)
    check("incr miss", client.incr("none", 1), None)
    check("touch", client.touch("key1", 100, noreply=False), True)
    check("delete", client.delete("key1", noreply=False), True)
    check("delete miss", client.delete("key1", noreply=False), False)
    large = b"0123456789abcdef" * 56_000
    check("set large", client.set("large", large, noreply=False), True)
    check("get large", client.get("large"), large)


def meta(host, port):
    """Bursts of meta commands whose keys lie on both servers: the answers keep their order."""
    with socket.create_connection((host, port), timeout=10) as connection:
        stream = connection.makefile("rwb")

        def asks(what, request, *answers):
            stream.write(request)
            stream.flush()
            for answer in answers:
                check(what, stream.readline(), answer)

        asks("mn", b"mn\r\n", b"MN\r\n")
        for number in range(50):
            asks("ms", b"ms m%d 1 T100\r\nx\r\n" % number, b"HD\r\n")
        gets = b"".join(b"mg m%d v k Oq%d\r\n" % (number, number) for number in range(50))
        lines = [line for number in range(50) for line in (b"VA 1 km%d Oq%d\r\n" % (number, number), b"x\r\n")]
        asks("a burst of mg", gets, *lines)
        asks("quiet mg", b"mg none v q\r\nmg m1 k q\r\nmn\r\n", b"HD km1\r\n", b"MN\r\n")
        asks("mg miss", b"mg none v\r\n", b"EN\r\n")
        asks("ms add", b"ms m1 1 ME\r\ny\r\n", b"NS\r\n")
        asks("ms append", b"ms m1 1 MA\r\ny\r\n", b"HD\r\n")
        asks("mg appended", b"mg m1 s v\r\n", b"VA 2 s2\r\n", b"xy\r\n")
        asks("ma", b"ma number N0 J40 v\r\nma number D2 v\r\n", b"VA 2\r\n", b"40\r\n", b"VA 2\r\n", b"42\r\n")
        asks("md", b"md m1\r\nmd m1\r\n", b"HD\r\n", b"NF\r\n")
        asks("stale", b"md m2 I T30\r\nmg m2 v\r\n", b"HD\r\n", b"VA 1 X W\r\n", b"x\r\n")
        asks("gat", b"gat 100 m3 m4 none\r\n", b"VALUE m3 0 1\r\n", b"x\r\n", b"VALUE m4 0 1\r\n", b"x\r\n", b"END\r\n")


def main():
    host, port, *servers = sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5])
    classic(Client((host, port), timeout=10, no_delay=True))
    shares = [int(Client((host, server)).stats()[b"curr_items"]) for server in servers]
    check("items of both servers", sum(shares), 1000)
    if min(shares) < 100:
        sys.exit(f"{NAME} as a proxy: one server has nearly nothing: {shares}")
    if NAME == "memcached":
        meta(host, port)
    print(f"{NAME} as a proxy: all well, shares {shares}")


main()

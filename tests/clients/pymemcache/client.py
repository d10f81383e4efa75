"""Every operation of pymemcache against the server at HOST PORT. Exits with 1 at the first surprise."""

import os
import ssl
import sys
import time

from pymemcache import serde
from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"pymemcache: {what}: got {got!r}, wanted {wanted!r}")


def storage(client, name):
    check(f"{name} set", client.set("s", b"value", expire=0, noreply=False), True)
    check(f"{name} get", client.get("s"), b"value")
    check(f"{name} get default", client.get("none", default=b"d"), b"d")
    check(f"{name} add", client.add("s", b"x", noreply=False), False)
    check(f"{name} add new", client.add("added", b"x", noreply=False), True)
    check(f"{name} replace", client.replace("s", b"other", noreply=False), True)
    check(f"{name} replace miss", client.replace("none", b"x", noreply=False), False)
    check(f"{name} append", client.append("s", b"+", noreply=False), True)
    check(f"{name} prepend", client.prepend("s", b"-", noreply=False), True)
    check(f"{name} append miss", client.append("none", b"+", noreply=False), False)
    check(f"{name} prepend miss", client.prepend("none", b"+", noreply=False), False)
    check(f"{name} get joined", client.get("s"), b"-other+")
    check(f"{name} delete", client.delete("s", noreply=False), True)
    check(f"{name} delete miss", client.delete("s", noreply=False), False)
    check(f"{name} get deleted", client.get("s"), None)
    check(f"{name} set empty", client.set("empty", b"", noreply=False), True)
    check(f"{name} get empty", client.get("empty"), b"")
    everything = bytes(range(256)) * 40
    check(f"{name} set bytes", client.set("bytes", everything, noreply=False), True)
    check(f"{name} get bytes", client.get("bytes"), everything)


def without_reply(client, name):
    """pymemcache sends noreply by default: nothing may answer, or the next answer is the wrong one."""
    client.set("n", b"1")
    client.add("n", b"2")
    client.replace("n", b"3")
    client.append("n", b"4")
    client.prepend("n", b"5")
    check(f"{name} noreply storage", client.get("n"), b"534")
    client.incr("n", 1, noreply=True)
    client.decr("n", 5, noreply=True)
    client.touch("n", 100, noreply=True)
    check(f"{name} noreply counting", client.get("n"), b"530")
    client.cas("n", b"cas", client.gets("n")[1], noreply=True)
    check(f"{name} noreply cas", client.get("n"), b"cas")
    client.delete("n")
    check(f"{name} noreply delete", client.get("n"), None)


def many(client, name):
    values = {f"many{i}": b"%d" % i for i in range(300)}
    check(f"{name} set_many", client.set_many(values, noreply=False), [])
    check(f"{name} set_multi", client.set_multi(values), [])
    check(f"{name} get_many", client.get_many(list(values) + ["none"]), values)
    check(f"{name} get_multi", client.get_multi(list(values)), values)
    check(f"{name} get_many of none", client.get_many([]), {})
    check(f"{name} delete_many", client.delete_many(list(values)[:100], noreply=False), True)
    check(f"{name} delete_multi", client.delete_multi(list(values)[100:200], noreply=False), True)
    check(f"{name} get_many left", len(client.get_many(list(values))), 100)


def cas(client, name):
    client.set("c", b"1", noreply=False)
    value, token = client.gets("c")
    check(f"{name} gets", value, b"1")
    check(f"{name} cas", client.cas("c", b"2", token, noreply=False), True)
    check(f"{name} cas again", client.cas("c", b"3", token, noreply=False), False)
    check(f"{name} cas miss", client.cas("none", b"3", token, noreply=False), None)
    check(f"{name} gets miss", client.gets("none"), (None, None))
    found = client.gets_many(["c", "none"])
    check(f"{name} gets_many", (list(found), found["c"][0]), (["c"], b"2"))


def counting(client, name):
    client.set("i", b"10", noreply=False)
    check(f"{name} incr", client.incr("i", 5), 15)
    check(f"{name} decr", client.decr("i", 20), 0)
    check(f"{name} incr miss", client.incr("none", 1), None)
    check(f"{name} decr miss", client.decr("none", 1), None)
    client.set("i", b"18446744073709551615", noreply=False)
    check(f"{name} incr wraps", client.incr("i", 2), 1)
    client.set("i", b"text", noreply=False)
    try:
        client.incr("i", 1)
        sys.exit(f"pymemcache: {name}: text was incremented")
    except MemcacheClientError:
        pass


def times(client, name):
    client.set("t", b"x", expire=2, noreply=False)
    client.set("u", b"x", expire=2, noreply=False)
    check(f"{name} touch", client.touch("u", 100, noreply=False), True)
    check(f"{name} touch miss", client.touch("none", 100, noreply=False), False)
    client.set("past", b"x", expire=-1, noreply=False)
    check(f"{name} in the past", client.get("past"), None)
    time.sleep(3.2)
    check(f"{name} expired", (client.get("t"), client.get("u")), (None, b"x"))


def whole_server(client):
    check("flush_all", client.flush_all(noreply=False), True)
    check("get flushed", client.get("u"), None)
    version = client.version()
    numbers = version.split(b" ")[0].split(b".")
    if [int(number) for number in numbers] < [1, 6, 27]:
        sys.exit(f"pymemcache: clients take {version!r} for an old server")
    stats = client.stats()
    for key in (b"pid", b"uptime", b"curr_items", b"cmd_get", b"limit_maxbytes"):
        if key not in stats:
            sys.exit(f"pymemcache: stats has no {key!r}")
    check("stats settings", b"maxconns" in client.stats("settings"), True)
    client.stats("items")
    check("raw_command", client.raw_command("mn"), b"MN")
    check("raw meta", client.raw_command("mg none v k"), b"EN knone")
    client.quit()
    check("a new connection after quit", client.get("none"), None)


def tags(client):
    """What only coua has: docs/tags.md. Elsewhere the first request is an error, and that is all."""
    try:
        client.raw_command("mg any G")
    except MemcacheClientError:
        return
    for key in ("one", "two"):
        check("a tag", client.raw_command(f"ms {key} 1 Gpage,site\r\nx"), b"HD")
    client.set("untagged", b"x", noreply=False)
    check("stale", client.raw_command("md page G I"), b"HD")
    check("the winner", client.raw_command("mg one"), b"HD X W")
    check("the others", client.raw_command("mg one"), b"HD Z X")
    check("a plain get", client.get_many(["one", "two"]), {"one": b"x", "two": b"x"})
    check("gone", client.raw_command("md site G"), b"HD")
    check("what is left", client.get_many(["one", "two", "untagged"]), {"untagged": b"x"})
    check("milliseconds", client.raw_command("ms short 1 T60ms\r\nx"), b"HD")
    time.sleep(0.2)
    check("after milliseconds", client.get("short"), None)


def errors(client, address):
    for key in ("a b", "k" * 251, "a\r\n"):
        try:
            client.get(key)
            sys.exit(f"pymemcache: the key {key!r} was taken")
        except MemcacheClientError:
            pass
    check("a long key", client.set("k" * 250, b"x", noreply=False), True)
    try:
        client.set("big", b"x" * 2_000_000, noreply=False)
        sys.exit("pymemcache: a value of two megabytes was taken")
    except MemcacheServerError as error:
        check("too large", str(error), "b'object too large for cache'")
    fresh = Client(address, tls_context=encryption())
    check("after an error", fresh.set("a", b"b", noreply=False), True)
    fresh.close()


def encryption():
    """TLS as the environment asks for it, with a certificate of the client's if it names one; None without."""
    if "TLS_CA" not in os.environ:
        return None
    context = ssl.create_default_context(cafile=os.environ["TLS_CA"])
    if "TLS_CERTIFICATE" in os.environ:
        context.load_cert_chain(os.environ["TLS_CERTIFICATE"], os.environ["TLS_KEY"])
    return context


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    address = (host, port)
    secured = {"tls_context": encryption()}
    plain = Client(address, timeout=10, no_delay=True, **secured)
    for name, client in (
        ("Client", plain),
        ("PooledClient", PooledClient(address, max_pool_size=4, timeout=10, **secured)),
        ("HashClient", HashClient([address], timeout=10, **secured)),
    ):
        plain.flush_all(noreply=False)
        storage(client, name)
        without_reply(client, name)
        many(client, name)
        cas(client, name)
        counting(client, name)
    times(plain, "Client")
    objects = Client(address, serde=serde.pickle_serde, **secured)
    objects.set("o", {"a": [1, "zwei", 3.0]}, noreply=False)
    check("objects by flags", objects.get("o"), {"a": [1, "zwei", 3.0]})
    squeezed = Client(address, serde=serde.compressed_serde, **secured)
    squeezed.set("z", "text " * 1000, noreply=False)
    check("compressed by flags", squeezed.get("z"), "text " * 1000)
    tags(plain)
    errors(plain, address)
    whole_server(plain)
    print("pymemcache: all well")


main()

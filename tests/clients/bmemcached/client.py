"""Every operation of python-binary-memcached, a client of the binary protocol alone, against the server at HOST PORT."""

import os
import socket
import ssl
import sys
import time

import bmemcached
from bmemcached.exceptions import MemcachedException

TOO_LARGE, NOT_A_NUMBER = 0x03, 0x06


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"bmemcached: {what}: got {got!r}, wanted {wanted!r}")


def refused(what, code, operation):
    try:
        got = operation()
    except MemcachedException as error:
        check(what, error.code, code)
    else:
        sys.exit(f"bmemcached: {what}: got {got!r}, wanted the status {code}")


def storage(client, name):
    check(f"{name} set", client.set("s", "value"), True)
    check(f"{name} get", client.get("s"), "value")
    check(f"{name} get miss", client.get("none"), None)
    check(f"{name} get default", client.get("none", "default"), "default")
    check(f"{name} add", client.add("s", "x"), False)
    check(f"{name} add new", client.add(f"added-{name}", "x"), True)
    check(f"{name} replace", client.replace("s", "other"), True)
    check(f"{name} replace miss", client.replace("none", "x"), False)
    check(f"{name} get replaced", client.get("s"), "other")
    check(f"{name} delete", client.delete("s"), True)
    # This client calls a missing key deleted.
    check(f"{name} delete miss", client.delete("s"), True)
    check(f"{name} get deleted", client.get("s"), None)
    # Type and compression travel in the flags: each kind of value sets other bits.
    for value in (1, -5, 2**40, "text", "", b"bytes\0\r\n", True, None, ["a", {"b": 1.5}], "long " * 1000):
        check(f"{name} set {value!r:.40}", client.set("v", value), True)
        check(f"{name} get {value!r:.40}", client.get("v"), value)
    long = "k" * 250
    check(f"{name} the longest key", (client.set(long, "x"), client.get(long), client.delete(long)), (True, "x", True))
    large = bytes(range(256)) * 3600
    check(f"{name} set large", client.set("large", large, compress_level=0), True)
    check(f"{name} get large", client.get("large"), large)


def many(client, name):
    values = {f"many{i}": f"value{i}" for i in range(1000)}
    check(f"{name} set_multi", client.set_multi(values), [])
    check(f"{name} get_multi", client.get_multi([*values, "none"]), values)
    with_cas = client.get_multi(["many1", "many2", "none"], get_cas=True)
    check(f"{name} get_multi with cas", {key: value for key, (value, _) in with_cas.items()}, {"many1": "value1", "many2": "value2"})
    tokens = client.set_multi_cas({"many1": "changed", "many2": "changed"})
    check(f"{name} set_multi_cas", sorted(tokens), ["many1", "many2"])
    check(f"{name} a multi-set's token", client.cas("many1", "again", tokens["many1"]), True)
    check(f"{name} delete_multi", client.delete_multi(list(values)), True)
    check(f"{name} get_multi deleted", client.get_multi(list(values)), {})


def cas(client, name):
    stored, first = client.set("c", "1", get_cas=True)
    check(f"{name} set tells the cas", (stored, first > 0), (True, True))
    check(f"{name} gets", client.gets("c"), ("1", first))
    check(f"{name} cas", client.cas("c", "2", first), True)
    check(f"{name} cas again", client.cas("c", "3", first), False)
    check(f"{name} get after cas", client.get("c"), "2")
    changed, second = client.replace("c", "4", get_cas=True)
    check(f"{name} replace tells the cas", (changed, second > first), (True, True))
    check(f"{name} delete with an old cas", client.delete("c", cas=first), False)
    check(f"{name} delete with its cas", client.delete("c", cas=second), True)
    check(f"{name} cas miss", client.cas("c", "5", second), False)
    check(f"{name} gets miss", client.gets("c"), (None, None))


def counting(client, name):
    for key in ("i", "j", "k"):
        client.delete(key)
    check(f"{name} incr initial", client.incr("i", 5, default=40), 40)
    check(f"{name} incr", client.incr("i", 5), 45)
    check(f"{name} decr", client.decr("i", 3), 42)
    check(f"{name} decr below zero", client.decr("i", 100), 0)
    check(f"{name} decr initial", client.decr("j", 1, default=7), 7)
    client.incr("k", 1, default=2**64 - 1)
    check(f"{name} incr wraps", client.incr("k", 2), 1)
    client.set("text", "x")
    refused(f"{name} incr of text", NOT_A_NUMBER, lambda: client.incr("text", 1))


def times(client):
    client.set("t", "x", time=2)
    client.set("u", "x", time=100)
    client.set("absolute", "x", time=int(time.time()) + 100)
    client.incr("counted", 1, default=1, time=2)
    time.sleep(3.2)
    found = client.get_multi(["t", "u", "absolute", "counted"])
    check("expired", sorted(found), ["absolute", "u"])


def refusals(client, address):
    # An expiry of all ones creates nothing at a miss.
    refused("incr miss that creates nothing", 1, lambda: protocol(client).incr("none", 1, time=0xFFFFFFFF))
    refused("a value too large", TOO_LARGE, lambda: client.set("big", b"x" * 2_000_000, compress_level=0))
    check("after a value too large", (client.set("a", "b"), client.get("a")), (True, "b"))
    check("get of what was too large", client.get("big"), None)
    if "LOGIN_USER" in os.environ:
        return
    # A server without SASL does not know its opcodes, which this client takes as leave to go on.
    with_password = bmemcached.Client([address], "user", "password", socket_timeout=10, tls_context=encryption())
    check("a password for a server that has none", (with_password.set("p", "x"), with_password.get("p")), (True, "x"))


def whole_server(client, address):
    stats = client.stats()[address]
    for key in ("pid", "version", "curr_items", "cmd_get", "threads"):
        check(f"stats {key}", key in stats, True)
    check("stats settings", "maxbytes" in client.stats("settings")[address], True)
    client.set("f", "x")
    check("flush_all", client.flush_all(), True)
    check("get flushed", client.get("f"), None)
    client.disconnect_all()
    check("a new connection", (client.set("f", "y"), client.get("f")), (True, "y"))


def protocol(client):
    """What the client has for its only server, with the operations that the client itself does not offer."""
    return list(client.servers)[0]


def encryption():
    """TLS as the environment asks for it, with a certificate of the client's if it names one; None without."""
    if "TLS_CA" not in os.environ:
        return None
    context = ssl.create_default_context(cafile=os.environ["TLS_CA"])
    if "TLS_CERTIFICATE" in os.environ:
        context.load_cert_chain(os.environ["TLS_CERTIFICATE"], os.environ["TLS_KEY"])
    return context


def main():
    address = f"{sys.argv[1]}:{sys.argv[2]}"
    socket.setdefaulttimeout(20)
    login = (os.environ.get("LOGIN_USER"), os.environ.get("LOGIN_PASSWORD"))
    settings = {"socket_timeout": 10, "tls_context": encryption()}
    plain = bmemcached.Client([address], *login, **settings)
    distributed = bmemcached.DistributedClient([address], *login, **settings)
    for name, client in (("Client", plain), ("DistributedClient", distributed)):
        client.flush_all()
        storage(client, name)
        many(client, name)
        cas(client, name)
        counting(client, name)
    check("noop", protocol(plain).noop(), 0)
    times(plain)
    refusals(plain, address)
    whole_server(plain, address)
    print("bmemcached: all well")


main()

"""Every operation of pylibmc (libmemcached) against the server at HOST PORT, in the DIALECT text or binary."""

import os
import sys
import threading
import time

import pylibmc


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"pylibmc: {what}: got {got!r}, wanted {wanted!r}")


def misses(name, operation):
    """A miss that the text protocol tells as NOT_STORED is a NotFound in binary."""
    try:
        check(name, operation(), False)
    except pylibmc.NotFound:
        pass


def storage(client, name):
    check(f"{name} set", client.set("s", "value"), True)
    check(f"{name} get", client.get("s"), "value")
    check(f"{name} get miss", client.get("none"), None)
    check(f"{name} add", client.add("s", "x"), False)
    check(f"{name} add new", client.add(f"added {name}".replace(" ", "-"), "x"), True)
    check(f"{name} replace", client.replace("s", "other"), True)
    misses(f"{name} replace miss", lambda: client.replace("none", "x"))
    misses(f"{name} append miss", lambda: client.append("none", "x"))
    misses(f"{name} prepend miss", lambda: client.prepend("none", "x"))
    check(f"{name} append", client.append("s", "+"), True)
    check(f"{name} prepend", client.prepend("s", "-"), True)
    check(f"{name} get joined", client.get("s"), "-other+")
    check(f"{name} delete", client.delete("s"), True)
    check(f"{name} delete miss", client.delete("s"), False)
    for value in (1, 2**40, 1.5, True, b"bytes\0\r\n", "text", ["a", {"b": None}], b""):
        check(f"{name} set {value!r}", client.set("v", value), True)
        check(f"{name} get {value!r}", client.get("v"), value)
    big = "text " * 100_000
    check(f"{name} set compressed", client.set("big", big, min_compress_len=1000), True)
    check(f"{name} get compressed", client.get("big"), big)
    large = bytes(range(256)) * 3600
    check(f"{name} set large", client.set("large", large), True)
    check(f"{name} get large", client.get("large"), large)
    check(f"{name} operators", ("v" in client, "none" in client), (True, False))
    client["item"] = "x"
    check(f"{name} item", client["item"], "x")
    del client["item"]


def many(client, name):
    values = {f"many{i}": f"value{i}" for i in range(500)}
    check(f"{name} set_multi", client.set_multi(values), [])
    check(f"{name} get_multi", client.get_multi(list(values) + ["none"]), values)
    check(f"{name} get_multi prefix", client.get_multi(["1", "2"], key_prefix="many"), {"1": "value1", "2": "value2"})
    check(f"{name} add_multi", sorted(client.add_multi({"many1": "x", "fresh" + name: "y"})), ["many1"])
    check(f"{name} delete_multi", client.delete_multi(list(values)), True)
    check(f"{name} get_multi deleted", client.get_multi(list(values)), {})


def counting(client, name):
    client.set("i", 10)
    check(f"{name} incr", client.incr("i"), 11)
    check(f"{name} incr by", client.incr("i", 31), 42)
    check(f"{name} decr", client.decr("i", 2), 40)
    client.set("j", 1)
    client.incr_multi(["i", "j"], delta=5)
    check(f"{name} incr_multi", (client.get("i"), client.get("j")), (45, 6))
    check(f"{name} decr below zero", client.decr("i", 100), 0)
    for operation in (client.incr, client.decr):
        try:
            operation("none")
            sys.exit(f"pylibmc: {name}: a missing key was counted")
        except pylibmc.NotFound:
            pass
    client.set("text", "x")
    try:
        # In binary libmemcached takes this answer for the server's death and does not come back at once.
        client.clone().incr("text")
        sys.exit(f"pylibmc: {name}: a text was incremented")
    except pylibmc.Error:
        pass
    check(f"{name} after an error", client.get("i"), 0)


def cas(client, name):
    client.set("c", 1)
    value, token = client.gets("c")
    check(f"{name} gets", value, 1)
    check(f"{name} cas", client.cas("c", 2, token), True)
    check(f"{name} cas again", client.cas("c", 3, token), False)
    check(f"{name} get after cas", client.get("c"), 2)
    client.delete("c")
    try:
        client.cas("c", 4, token)
        sys.exit(f"pylibmc: {name}: a missing key was compared and swapped")
    except pylibmc.NotFound:
        pass
    check(f"{name} gets miss", client.gets("c"), (None, None))


def times(client):
    client.set("t", "x", time=2)
    client.set("u", "x", time=2)
    check("touch", client.touch("u", 100), True)
    check("touch miss", client.touch("none", 100), False)
    time.sleep(3.2)
    check("expired", (client.get("t"), client.get("u")), (None, "x"))


def threads(address, binary):
    """A pool of connections, used by eight threads at once."""
    pool = pylibmc.ClientPool(pylibmc.Client([address], binary=binary, **login(binary), behaviors={"tcp_nodelay": True}), 4)
    with pool.reserve() as client:
        client.set("count", 0)

    def work():
        for _ in range(200):
            with pool.reserve(block=True) as client:
                client.incr("count")

    workers = [threading.Thread(target=work) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    with pool.reserve() as client:
        check("threads", client.get("count"), 1600)


def without_waiting(address, binary, plain):
    """Unanswered requests are read back over a connection that waits for its answers."""
    client = pylibmc.Client([address], binary=binary, **login(binary), behaviors={**plain, "_noreply": True})
    for number in range(1000):
        client.set(f"n{number % 10}", number)
    client.delete("n2")
    client.disconnect_all()
    reader = pylibmc.Client([address], binary=binary, **login(binary), behaviors=plain)
    for _ in range(100):
        found = (reader.get("n9"), reader.get("n2"))
        if found == (999, None):
            break
        time.sleep(0.01)
    check("noreply", found, (999, None))


def whole_server(client):
    copy = client.clone()
    copy.set("n9", 999)
    check("clone", client.get("n9"), 999)
    stats = client.get_stats()[0][1]
    for key in ("pid", "curr_items", "cmd_get", "limit_maxbytes", "threads"):
        # libmemcached invents zeroes and minus ones for what the server does not say.
        check(f"stats {key}", int(stats[key]) > 0, True)
    check("stats version", len(stats["version"]) > 3, True)
    check("flush_all", client.flush_all(), True)
    check("get flushed", client.get("n9"), None)


def login(binary):
    """Name and password as the environment has them: libmemcached logs in by SASL alone."""
    if not binary or "LOGIN_USER" not in os.environ:
        return {}
    return {"username": os.environ["LOGIN_USER"], "password": os.environ["LOGIN_PASSWORD"]}


def main():
    address = f"{sys.argv[1]}:{sys.argv[2]}"
    binary = {"text": False, "binary": True}[sys.argv[3]]
    plain = {"cas": True, "tcp_nodelay": True}
    if not binary:
        plain["verify_keys"] = True
    for name, behaviors in (
        ("plain", plain),
        ("ketama", {**plain, "ketama": True}),
        ("no_block", {**plain, "no_block": True}),
    ):
        client = pylibmc.Client([address], binary=binary, **login(binary), behaviors=behaviors)
        client.flush_all()
        storage(client, name)
        many(client, name)
        counting(client, name)
        cas(client, name)
    client = pylibmc.Client([address], binary=binary, **login(binary), behaviors=plain)
    without_waiting(address, binary, plain)
    times(client)
    threads(address, binary)
    whole_server(client)
    print(f"pylibmc: all well in {sys.argv[3]}")


main()

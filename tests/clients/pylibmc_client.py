"""Every operation of pylibmc (libmemcached), in the text protocol, against the server at HOST PORT."""

import sys
import threading
import time

import pylibmc


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"pylibmc: {what}: got {got!r}, wanted {wanted!r}")


def storage(client, name):
    check(f"{name} set", client.set("s", "value"), True)
    check(f"{name} get", client.get("s"), "value")
    check(f"{name} get miss", client.get("none"), None)
    check(f"{name} add", client.add("s", "x"), False)
    check(f"{name} add new", client.add(f"added {name}".replace(" ", "-"), "x"), True)
    check(f"{name} replace", client.replace("s", "other"), True)
    check(f"{name} replace miss", client.replace("none", "x"), False)
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
    try:
        client.incr("none")
        sys.exit(f"pylibmc: {name}: a missing key was incremented")
    except pylibmc.NotFound:
        pass


def cas(client, name):
    client.set("c", 1)
    value, token = client.gets("c")
    check(f"{name} gets", value, 1)
    check(f"{name} cas", client.cas("c", 2, token), True)
    check(f"{name} cas again", client.cas("c", 3, token), False)


def times(client):
    client.set("t", "x", time=1)
    client.set("u", "x", time=1)
    check("touch", client.touch("u", 100), True)
    check("touch miss", client.touch("none", 100), False)
    time.sleep(2.2)
    check("expired", (client.get("t"), client.get("u")), (None, "x"))


def threads(address):
    """A pool of connections, used by eight threads at once."""
    pool = pylibmc.ClientPool(pylibmc.Client([address], behaviors={"tcp_nodelay": True}), 4)
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


def main():
    address = f"{sys.argv[1]}:{sys.argv[2]}"
    plain = {"cas": True, "tcp_nodelay": True, "verify_keys": True}
    for name, behaviors in (
        ("plain", plain),
        ("ketama", {**plain, "ketama": True}),
        ("no_block", {**plain, "no_block": True}),
    ):
        client = pylibmc.Client([address], binary=False, behaviors=behaviors)
        storage(client, name)
        many(client, name)
        counting(client, name)
        cas(client, name)
    # Buffered and unanswered requests are read back over a connection that waits for its answers.
    client = pylibmc.Client([address], binary=False, behaviors={**plain, "_noreply": True})
    for number in range(1000):
        client.set(f"n{number % 10}", number)
    client.incr("n1")
    client.delete("n2")
    client.disconnect_all()
    reader = pylibmc.Client([address], binary=False, behaviors=plain)
    for _ in range(100):
        found = (reader.get("n9"), reader.get("n2"))
        if found == (999, None):
            break
        time.sleep(0.01)
    check("noreply", found, (999, None))
    times(reader)
    threads(address)
    copy = reader.clone()
    check("clone", copy.get("n9"), 999)
    stats = reader.get_stats()[0][1]
    for key in ("pid", "version", "curr_items", "threads"):
        check(f"stats {key}", key in stats or key.encode() in stats, True)
    check("flush_all", reader.flush_all(), True)
    check("get flushed", reader.get("n9"), None)
    print("pylibmc: all well")


main()

"""Every operation of meta-memcache, a client of the meta commands alone, against the server at HOST PORT.

Beside storing and counting: leases at a miss, recaching before the end, stale items, and what a get tells of an item.
"""

import logging
import os
import sys
import time

from meta_memcache import CacheClient, Key, ServerAddress, SetMode, connection_pool_factory_builder
from meta_memcache.configuration import LeasePolicy, RecachePolicy, StalePolicy
from meta_memcache.errors import MemcacheError
from meta_memcache.protocol import Conflict, Miss, RequestFlags, Success, Value


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"meta-memcache: {what}: got {got!r:.300}, wanted {wanted!r:.300}")


def storage(client):
    check("set", client.set("s", "value", ttl=100), True)
    check("get", client.get("s"), "value")
    check("get miss", client.get("none"), None)
    check("add", client.set("s", "x", ttl=100, set_mode=SetMode.ADD), False)
    check("add new", client.set("added", "x", ttl=100, set_mode=SetMode.ADD), True)
    check("refill", client.refill("s", "x", ttl=100), False)
    check("replace", client.set("s", "other", ttl=100, set_mode=SetMode.REPLACE), True)
    check("replace miss", client.set("none", "x", ttl=100, set_mode=SetMode.REPLACE), False)
    check("append", client.set("s", "+", ttl=100, set_mode=SetMode.APPEND), True)
    check("prepend", client.set("s", "-", ttl=100, set_mode=SetMode.PREPEND), True)
    check("append miss", client.set("none", "+", ttl=100, set_mode=SetMode.APPEND), False)
    check("get joined", client.get("s"), "-other+")
    check("get_typed", client.get_typed("s", str), "-other+")
    check("get_typed of another type", client.get_typed("s", int), None)
    check("delete", client.delete("s"), True)
    check("delete miss", client.delete("s"), False)
    check("invalidate miss", client.invalidate("s"), True)
    for value in (1, 2.5, True, b"", b"bytes\0\r\nEN\r\n", {"a": [1, None]}, "long " * 10_000, os.urandom(900_000)):
        check("set of a value", client.set("v", value, ttl=100), True)
        check("get of a value, its type told by the flags", client.get("v"), value)
    for name in ("k" * 250, "with blanks and \u00e9", "k" * 400):
        # What no key may be goes as base64, or hashed where it is too long.
        check(f"set of the key {name:.20}", client.set(name, name, ttl=100), True)
        check(f"get of the key {name:.20}", client.get(name), name)
    try:
        client.set("v", os.urandom(2_000_000), ttl=100)
        sys.exit("meta-memcache: a value of two megabytes was taken")
    except MemcacheError:
        pass
    check("get of what was too large", client.get("v"), None)


def many(client):
    keys = [Key(f"many{number}") for number in range(1000)]
    for key in keys:
        check("set of many", client.set(key, key.key, ttl=100), True)
    wanted = {key: key.key for key in keys}
    check("multi_get", client.multi_get([*keys, Key("none")]), {**wanted, Key("none"): None})
    seen = client.multi_get_cas(keys[:2] + [Key("none")])
    check("multi_get_cas", [seen[key][0] for key in keys[:2]], ["many0", "many1"])
    check("set with the cas of a multi_get_cas", client.set(keys[0], "x", ttl=100, cas_token=seen[keys[0]][1]), True)


def cas(client):
    first = client.set_cas("c", "first", ttl=100)
    check("get_cas", client.get_cas("c"), ("first", first))
    check("get_cas miss", client.get_cas("none"), (None, None))
    check("set with a cas", client.set("c", "second", ttl=100, cas_token=first), True)
    check("set with an old cas", client.set("c", "third", ttl=100, cas_token=first), False)
    check("get after cas", client.get("c"), "second")
    check("delete with an old cas", client.delete("c", cas_token=first), False)
    check("a conflict", type(client.meta_delete(Key("c"), RequestFlags(cas_token=first))), Conflict)
    check("delete with its cas", client.delete("c", cas_token=client.get_cas("c")[1]), True)
    check("set with a cas at a miss", client.set("c", "x", ttl=100, cas_token=first), False)


def counting(client):
    client.set("i", 40, ttl=100)
    check("delta", client.delta("i", 5), True)
    check("delta_and_get", client.delta_and_get("i", -3), 42)
    check("delta below zero", client.delta_and_get("i", -100), 0)
    check("delta miss", client.delta("none", 1), False)
    check("delta_and_get miss", client.delta_and_get("none", 1), None)
    check("delta_initialize", client.delta_initialize("j", 1, initial_value=70, initial_ttl=100), True)
    check("delta_initialize_and_get", client.delta_initialize_and_get("j", 2, initial_value=70, initial_ttl=100), 72)
    # memcached forgets the new time where the number gets another digit.
    check("delta that refreshes", client.delta_and_get("j", 1, refresh_ttl=500), 73)
    check("its time to live", client.meta_get(Key("j"), RequestFlags(return_ttl=True)).flags.ttl > 400, True)
    token = client.get_cas("j")[1]
    check("delta with a cas", client.delta_and_get("j", 1, cas_token=token), 74)
    check("delta with an old cas", client.delta("j", 1, cas_token=token), False)
    client.set("text", "x", ttl=100)
    try:
        client.delta("text", 1)
        sys.exit("meta-memcache: a text was incremented")
    except MemcacheError:
        check("after an error", client.delta_and_get("j", 1), 75)


def told(client):
    """What a get tells of an item beside its value."""
    client.set("told", b"four", ttl=100)
    asked = RequestFlags(
        return_value=True, return_ttl=True, return_size=True, return_fetched=True, return_last_access=True,
        return_client_flag=True, return_cas_token=True, no_update_lru=True,
    )
    seen = client.meta_get(Key("told"), asked)
    check("kind", type(seen), Value)
    check("size, fetched, last access", (seen.flags.size, seen.flags.fetched, seen.flags.last_access), (4, False, 0))
    check("time to live", 98 <= seen.flags.ttl <= 100, True)
    client.get("told")
    check("fetched", client.meta_get(Key("told"), asked).flags.fetched, True)
    check("without a value", type(client.meta_get(Key("told"), RequestFlags(return_size=True))), Success)
    check("an opaque", client.meta_get(Key("told"), RequestFlags(opaque=b"xyz")).flags.opaque, b"xyz")
    check("a miss", type(client.meta_get(Key("none"), asked)), Miss)


def herds(client):
    """Of many clients at a miss one makes the value; the others wait for it or take the old one."""
    lease = LeasePolicy(ttl=30, miss_retries=2, miss_retry_wait=0.01)
    check("the winner of a lease", client.get_or_lease("l", lease), None)
    waits = []

    def make(seconds):
        waits.append(seconds)
        client.set("l", "made", ttl=100)

    check("who waits for a lease", client.get_or_lease("l", lease, lease_wait_fn=make), "made")
    check("how often it waited", len(waits), 1)
    check("a hit with a lease", client.get_or_lease_cas("l", lease)[0], "made")

    client.set("r", "old", ttl=20)
    recache = RecachePolicy(ttl=30)
    check("the winner of a recache", client.get("r", recache_policy=recache), None)
    check("who comes later", client.get("r", recache_policy=recache), "old")
    client.set("r", "new", ttl=100)
    check("after the recache", client.get("r", recache_policy=recache), "new")

    stale = StalePolicy(mark_stale_on_deletion_ttl=30, mark_stale_on_cas_mismatch=True)
    token = client.set_cas("x", "old", ttl=100)
    check("a delete that marks", client.delete("x", stale_policy=stale), True)
    winner = client.meta_get(Key("x"), RequestFlags(return_value=True, return_cas_token=True))
    check("the winner of a stale item", (winner.value, winner.flags.win, winner.flags.stale), ("old", True, True))
    loser = client.meta_get(Key("x"), RequestFlags(return_value=True))
    check("the loser of a stale item", (loser.value, loser.flags.win, loser.flags.stale), ("old", False, True))
    check("a late set stays stale", client.set("x", "late", ttl=100, cas_token=token, stale_policy=stale), True)
    late = client.meta_get(Key("x"), RequestFlags(return_value=True))
    check("the late value", (late.value, late.flags.stale), ("late", True))
    check("a set that is not late", client.set("x", "new", ttl=100), True)
    fresh = client.meta_get(Key("x"), RequestFlags(return_value=True))
    check("the new value", (fresh.value, fresh.flags.stale), ("new", False))


def times(client):
    for key in ("t", "u", "v"):
        client.set(key, key, ttl=2)
    check("touch", client.touch("u", ttl=100), True)
    check("touch miss", client.touch("none", ttl=100), False)
    check("get that touches", client.get("v", touch_ttl=100), "v")
    time.sleep(3.2)
    found = client.multi_get([Key(key) for key in "tuv"])
    check("what is expired and what is not", [found[Key(key)] for key in "tuv"], [None, "u", "v"])


def without_reply(client):
    """Quiet orders, then an order with an answer on the same connection."""
    for number in range(200):
        client.set(f"n{number}", number, ttl=100, no_reply=True)
    client.delta("n1", 10, no_reply=True)
    client.delete("n2", no_reply=True)
    client.delete("none", no_reply=True)
    client.touch("n3", ttl=500, no_reply=True)
    check("what quiet orders did", [client.get(f"n{number}") for number in (1, 2, 3, 199)], [11, None, 3, 199])


def main():
    # It logs each refusal that this script provokes.
    logging.disable(logging.CRITICAL)
    address = ServerAddress(sys.argv[1], int(sys.argv[2]))
    # Its default asks the kernel for 4 KiB, through which a large value trickles for half a minute.
    pool = connection_pool_factory_builder(
        max_pool_size=1, connection_timeout=10, recv_timeout=10, read_buffer_size=1 << 20
    )
    client = CacheClient.cache_client_from_servers(servers=[address], connection_pool_factory_fn=pool)
    for part in (storage, many, cas, counting, told, herds, times, without_reply):
        part(client)
    print("meta-memcache: all well")


main()

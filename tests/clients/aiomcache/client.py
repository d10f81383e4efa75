"""Every operation of aiomcache, an asyncio client of the text protocol, against the server at HOST PORT."""

import asyncio
import pickle
import sys
import time

import aiomcache
from aiomcache.exceptions import ClientException, ValidationException


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"aiomcache: {what}: got {got!r:.300}, wanted {wanted!r:.300}")


async def refused(what, error, operation):
    try:
        got = await operation
    except error:
        return
    sys.exit(f"aiomcache: {what}: got {got!r}, wanted an error")


async def storage(client):
    check("set", await client.set(b"s", b"value"), True)
    check("get", await client.get(b"s"), b"value")
    check("get miss", await client.get(b"none"), None)
    check("get default", await client.get(b"none", b"default"), b"default")
    check("add", await client.add(b"s", b"x"), False)
    check("add new", await client.add(b"added", b"x"), True)
    check("replace", await client.replace(b"s", b"other"), True)
    check("replace miss", await client.replace(b"none", b"x"), False)
    check("append", await client.append(b"s", b"+"), True)
    check("prepend", await client.prepend(b"s", b"-"), True)
    check("append miss", await client.append(b"none", b"x"), False)
    check("prepend miss", await client.prepend(b"none", b"x"), False)
    check("get joined", await client.get(b"s"), b"-other+")
    check("delete", await client.delete(b"s"), True)
    check("delete miss", await client.delete(b"s"), False)
    for value in (b"", b"bytes\0\r\nEND\r\n", bytes(range(256)) * 3600):
        check("set of bytes", await client.set(b"v", value), True)
        check("get of bytes", await client.get(b"v"), value)
    check("set of the longest key", await client.set(b"k" * 250, b"x"), True)
    check("get of the longest key", await client.get(b"k" * 250), b"x")


async def many(client):
    keys = [b"many%d" % number for number in range(1000)]
    check("set of many", await asyncio.gather(*(client.set(key, key) for key in keys)), [True] * 1000)
    check("multi_get", await client.multi_get(*keys, b"none"), (*keys, None))
    check("get of many", await asyncio.gather(*(client.get(key) for key in keys)), keys)
    check("delete of many", await asyncio.gather(*(client.delete(key) for key in keys)), [True] * 1000)
    check("multi_get of what is deleted", await client.multi_get(*keys[:10]), (None,) * 10)


async def cas(client):
    await client.set(b"c", b"first")
    value, token = await client.gets(b"c")
    check("gets", value, b"first")
    check("gets miss", await client.gets(b"none"), (None, None))
    check("cas", await client.cas(b"c", b"second", token), True)
    check("cas again", await client.cas(b"c", b"third", token), False)
    check("get after cas", await client.get(b"c"), b"second")
    check("cas miss", await client.cas(b"none", b"x", token), False)


async def counting(client):
    await client.set(b"i", b"10")
    check("incr", await client.incr(b"i"), 11)
    check("incr by", await client.incr(b"i", 31), 42)
    check("decr", await client.decr(b"i", 2), 40)
    check("decr below zero", await client.decr(b"i", 100), 0)
    await refused("incr miss", ClientException, client.incr(b"none"))
    await refused("decr miss", ClientException, client.decr(b"none"))
    await client.set(b"text", b"x")
    await refused("incr of text", ClientException, client.incr(b"text"))
    check("after an error", await client.incr(b"i"), 1)


async def times(client):
    for key in (b"t", b"u"):
        await client.set(key, key, exptime=2)
    await client.set(b"w", b"w", exptime=int(time.time()) + 100)
    check("touch", await client.touch(b"u", 100), True)
    check("touch miss", await client.touch(b"none", 100), False)
    await asyncio.sleep(3.2)
    check("what is expired and what is not", await client.multi_get(b"t", b"u", b"w"), (None, b"u", b"w"))


async def flags(host, port):
    """A client that tells objects from bytes by the flags."""

    async def get_flag(value, flag):
        return pickle.loads(value) if flag == 4294967295 else value

    async def set_flag(value):
        return pickle.dumps(value), 4294967295

    client = aiomcache.FlagClient(host, port, get_flag_handler=get_flag, set_flag_handler=set_flag)
    wanted = {"a": [1, "zwei", 3.0]}
    check("set of an object", await client.set(b"o", wanted), True)
    check("get of an object", await client.get(b"o"), wanted)
    await client.set(b"b", b"bytes")
    check("multi_get of both", await client.multi_get(b"o", b"b"), (wanted, b"bytes"))
    await client.close()


async def whole_server(client):
    await refused("a value too large", ClientException, client.set(b"large", b"x" * 2_000_000))
    await refused("a key with a blank", ValidationException, client.get(b"a b"))
    check("set after errors", await client.set(b"f", b"x"), True)
    check("version", b"." in await client.version(), True)
    stats = await client.stats()
    for key in (b"pid", b"version", b"curr_items", b"cmd_get", b"threads"):
        check(f"stats {key}", bool(stats[key]), True)
    check("stats settings", int((await client.stats(b"settings"))[b"maxbytes"]) > 0, True)
    check("flush_all", await client.flush_all(), None)
    check("get flushed", await client.get(b"f"), None)


async def main():
    host, port = sys.argv[1], int(sys.argv[2])
    client = aiomcache.Client(host, port, pool_size=8)
    await client.flush_all()
    await storage(client)
    await many(client)
    await cas(client)
    await counting(client)
    await times(client)
    await flags(host, port)
    await whole_server(client)
    await client.close()
    print("aiomcache: all well")


asyncio.run(main())

"""Three coua behind proxies and clients; one is killed, one is replaced, one is added, under load.

    check.py COUA MEMCACHED NUTCRACKER

Each bound follows from the way in which keys are spread; none is a matter of time:

- a server has a share of 1/n of the keys, give or take six standard deviations;
- when one goes or is replaced, no key moves but its own, and only its own keys fail or are missed;
- when one is added, keys move to it alone, and they are its share: 1/4;
- no value is another key's, and none is older than the last one stored, but for keys of a server that failed over and
  has come back.
"""

import math
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

import fleet
from fleet import KEYS, Connection, Failure, Load, Node, Program, await_, free_port

COUA, MEMCACHED, NUTCRACKER = sys.argv[1:4]
RECIPES = pathlib.Path(__file__).resolve().parent.parent
FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="coua-fleet-"))


def check(condition, text):
    if not condition:
        raise AssertionError(text)


def spread(share, servers, points):
    """Six standard deviations of a server's share: of a draw of the keys, and of the points on a ring, if it is one."""
    variance = share * (1 - share) / len(KEYS)
    if points:
        variance += share * (1 - share) / (servers * points + 1)
    return 6 * math.sqrt(variance)


# How long proxies and clients wait for an answer: here so long that only a server that is gone is taken for one.
LIMITS = [("_timeout = 1,", "_timeout = 30,"), ("timeout: 400", "timeout: 30000")]


def recipe(name, nodes):
    """A recipe with the addresses of these servers in the place of its own. Returns its path."""
    text = (RECIPES / name).read_text()
    for ours, longer in LIMITS:
        text = text.replace(ours, longer)
    for number, node in enumerate(nodes, 1):
        text = text.replace(f"10.0.0.{number}:11211", node.address)
    check("10.0.0." not in text, f"{name} names more servers than there are")
    path = FOLDER / pathlib.Path(name).name
    path.write_text(text)
    return path


class MemcachedProxy:
    """memcached's own proxy, with one of the recipes."""

    name, points, lost_by_change = "memcached's proxy", None, 0

    def __init__(self, name, nodes):
        # Always the same path, as for somebody who edits the file and then reloads.
        self.path = FOLDER / "routes.lua"
        self.write(name, nodes)
        port = free_port()
        library = RECIPES / "memcached-proxy/warm.lua"
        option = f"proxy_config=routelib:{library},proxy_arg={self.path}"
        self.program = Program([MEMCACHED, "-l", "127.0.0.1", "-p", str(port), "-u", "root", "-o", option], port)

    def write(self, name, nodes):
        self.path.write_text(recipe(f"memcached-proxy/{name}", nodes).read_text())

    def client(self):
        return Connection(self.program.port)

    def configure(self, nodes, name="sharding.lua"):
        self.write(name, nodes)
        if len(nodes) == 4 and name == "sharding.lua":
            text = self.path.read_text().replace(f'"{nodes[2].address}",', f'"{nodes[2].address}", "{nodes[3].address}",')
            self.path.write_text(text)
        self.reload()

    def reload(self):
        before = self.loads()
        self.program.process.send_signal(signal.SIGHUP)
        await_("the proxy has read its routes", lambda: self.loads() > before)

    def exchange(self, old, new):
        """The step of warm-up.lua, from one pool to another."""
        text = recipe("memcached-proxy/warm-up.lua", [*old, new[0]]).read_text()
        lists = [", ".join(f'"{node.address}"' for node in nodes) for nodes in (old, new)]
        for name, nodes in zip(("old", "new"), lists):
            text, count = re.subn(rf"    {name} = .*", f"    {name} = {{ backends = {{ {nodes} }} }},", text)
            check(count == 1, f"warm-up.lua has {count} pools of the name {name}")
        self.path.write_text(text)
        self.reload()

    def loads(self):
        connection = self.client()
        try:
            connection.request(b"mn\r\n", b"MN")
            connection.socket.sendall(b"stats\r\n")
            text = b""
            while not text.endswith(b"END\r\n"):
                text += connection.socket.recv(1 << 16)
        finally:
            connection.socket.close()
        return int(re.search(rb"STAT proxy_config_reloads (\d+)", text).group(1))

    def stop(self):
        self.program.kill()


class Nutcracker:
    """nutcracker, which is started anew for each change."""

    name, points = "nutcracker", 160
    # Each thread loses its connection once, and more often only while nobody listens.
    lost_by_change = fleet.THREADS

    def __init__(self, nodes):
        self.port, self.program = free_port(), None
        self.configure(nodes)

    def configure(self, nodes):
        path = recipe("nutcracker/nutcracker.yml", nodes)
        text = path.read_text().replace("0.0.0.0:11211", f"127.0.0.1:{self.port}")
        if len(nodes) == 4:
            text += f"   - {nodes[3].address}:1 four\n"
        path.write_text(text)
        if self.program:
            self.program.kill()
        stats = str(free_port())
        words = [NUTCRACKER, "-c", str(path), "-o", str(FOLDER / "log"), "-a", "127.0.0.1", "-s", stats]
        self.program = Program(words, self.port)

    def client(self):
        return Connection(self.port)

    def stop(self):
        self.program.kill()


class Ketama:
    """Clients of libmemcached with its ring of servers and ejection; each one asks for the list of servers as it is."""

    name, points, lost_by_change = "libmemcached's ketama", 160, 0

    def __init__(self, nodes):
        self.addresses, self.lock = [], threading.Lock()
        self.configure(nodes)

    def configure(self, nodes):
        self.addresses = [node.address for node in nodes]

    def client(self):
        return KetamaClient(self)

    def stop(self):
        pass


class KetamaClient:
    def __init__(self, front):
        self.front, self.addresses, self.client = front, None, None

    def current(self):
        import pylibmc  # noqa: PLC0415, only this front needs it

        if self.addresses != self.front.addresses:
            self.addresses = self.front.addresses
            # After two failures in a row a server is left out, and after two seconds it is tried again.
            behaviors = {
                "ketama_weighted": True,
                "tcp_nodelay": True,
                "connect_timeout": 30_000,
                "receive_timeout": 30_000_000,
                "send_timeout": 30_000_000,
                "retry_timeout": 1,
                "dead_timeout": 2,
                "remove_failed": 2,
            }
            self.client = pylibmc.Client(self.addresses, behaviors=behaviors)
            self.failure = pylibmc.Error
        return self.client

    def get(self, key):
        client = self.current()
        try:
            return client.get(key.decode())
        except self.failure as error:
            raise Failure(str(error)) from error

    def set(self, key, value):
        client = self.current()
        try:
            if not client.set(key.decode(), value):
                raise Failure("it was not stored")
        except self.failure as error:
            raise Failure(str(error)) from error


def only(counts, keys, what):
    others = set(counts) - set(keys)
    check(not others, f"{what} of keys that have nothing to do with it: {sorted(others)[:5]} and others, {len(others)}")


def well(counts, front, change, errors=(), misses=(), stale=(), lost=0):
    """Errors, misses and stale values are those of these keys alone, and no value is wrong."""
    print(f"  {change}: {counts}", flush=True)
    check(not counts.wrong, f"wrong values: {counts.wrong[:3]}")
    only(counts.errors, errors, "errors")
    only(counts.misses, misses, "misses")
    only(counts.stale, stale, "stale values")
    check(counts.requests > 0, "there was no load")
    check(lost or not counts.lost, f"{counts.lost} connections to {front.name} were lost")


def shares(holders, nodes, points):
    for node in nodes:
        share = sum(node in on for on in holders.values()) / len(KEYS)
        wanted = 1 / len(nodes)
        print(f"  port {node.port} has {share:.3f} of the keys", flush=True)
        bound = spread(wanted, len(nodes), points)
        check(abs(share - wanted) <= bound, f"a share of {share:.3f}, not {wanted:.3f} ± {bound:.3f}")


def one_each(holders):
    many = [key for key, on in holders.items() if len(on) != 1]
    check(not many, f"keys that are not on one server: {many[:5]}")


def moved(before, after):
    return {key for key in KEYS if before[key] != after[key]}


def served(front, keys):
    """Whether each key is answered, one after another, without an error."""
    client = front.client()

    def all_of_them():
        try:
            for key in keys:
                client.get(key)
            return True
        except Failure:
            return False

    return all_of_them


def fails_over(front, nodes):
    """A front whose keys go to other servers while one is down: kill it, start it anew, kill it again."""
    load = Load(front.client)
    before = load.holders(nodes)
    shares(before, nodes, front.points)
    victim = nodes[1]
    of_victim = {key for key, on in before.items() if victim in on}

    load.start()
    load.more(300)
    victim.kill()
    await_("the victim's keys are served", served(front, sorted(of_victim)))
    load.more(1000)
    return load, before, victim, of_victim


def rings(front, nodes):
    """nutcracker and clients with a ring: a dead server's keys go to the others, until it is there again."""
    load, before, victim, of_victim = fails_over(front, nodes)
    well(load.stop(), front, "one killed", errors=of_victim, misses=of_victim)
    without = load.holders(nodes)
    check(moved(before, without) == of_victim, "keys of servers that live have moved")
    print(f"  moved: {len(of_victim) / len(KEYS):.3f} of the keys, the victim's", flush=True)

    load.start()
    load.more(300)
    victim.start()
    front.configure(nodes)

    def is_back():
        # Each client notices by itself, so all of them have to.
        at = {key for key, value in victim.values().items() if key in of_victim}
        return len(at) > len(of_victim) / 2

    await_("the victim's keys are back", is_back)
    await_("the victim's keys are served", served(front, sorted(of_victim)))
    # What was stored elsewhere is asked for again if the server was tried too early, and is older then.
    well(load.stop(), front, "replaced", of_victim, of_victim, of_victim, front.lost_by_change)
    after = load.holders(nodes)
    check(not moved(before, after), "keys have moved although all servers are back")
    grows(front, nodes, load, after)


def grows(front, nodes, load, before):
    """A server more: keys move to it and nowhere else."""
    node = Node(COUA)
    nodes = [*nodes, node]
    try:
        load.start()
        load.more(300)
        front.configure(nodes)
        load.more(3000)
        counts = load.stop()
        after = load.holders(nodes)
        one_each(after)
        gone = moved(before, after)
        check(all(after[key] == {node} for key in gone), "keys have moved between servers that stay")
        well(counts, front, "one added", misses=gone, lost=front.lost_by_change)
        check(max(counts.misses.values(), default=0) <= 1, "a key that was stored after a miss was missed again")
        print(f"  moved: {len(gone) / len(KEYS):.3f} of the keys, all to the new one", flush=True)
        shares(after, nodes, front.points)
    finally:
        node.kill()


def nutcracker(nodes):
    front = Nutcracker(nodes)
    try:
        rings(front, nodes)
    finally:
        front.stop()


def ketama(nodes):
    rings(Ketama(nodes), nodes)


def sharding(nodes):
    """memcached's proxy without failover: kill one, put another in its place, add one with warm-up."""
    front = MemcachedProxy("sharding.lua", nodes)
    extra = []
    try:
        load = Load(front.client)
        before = load.holders(nodes)
        one_each(before)
        shares(before, nodes, front.points)
        victim = nodes[1]
        of_victim = {key for key, on in before.items() if victim in on}
        load.start()
        load.more(300)
        victim.kill()
        load.more(2000)
        check(load.counts.errors, "nobody noticed that a server is gone")
        # Another machine takes its place in the list.
        other = Node(COUA)
        extra.append(other)
        replaced = [nodes[0], other, nodes[2]]
        front.configure(replaced)
        await_("all keys are served", served(front, KEYS))
        load.more(1000)
        well(load.stop(), front, "one killed and replaced", errors=of_victim, misses=of_victim)
        after = load.holders(replaced)
        gone = moved(before, after)
        check(gone == of_victim, "keys of servers that live have moved")
        print(f"  moved: {len(gone) / len(KEYS):.3f} of the keys, the victim's", flush=True)

        # One more: first all four with the old three behind them, then what nobody asks for, then four alone.
        fourth = Node(COUA)
        extra.append(fourth)
        four = [*replaced, fourth]
        load.start()
        load.more(300)
        front.configure(four, "warm-up.lua")
        load.more(1000)
        copy_items(replaced, four)
        load.more(1000)
        front.configure(four)
        load.more(3000)
        well(load.stop(), front, "one added, with warm-up")
        final = load.holders(four)
        one_each(final)
        gone = moved(after, final)
        check(all(final[key] == {fourth} for key in gone), "keys have moved between servers that stay")
        print(f"  moved: {len(gone) / len(KEYS):.3f} of the keys, all to the new one", flush=True)
        shares(final, four, front.points)
    finally:
        front.stop()
        for node in extra:
            node.kill()


def copy_items(sources, nodes):
    """Copies by way of a proxy for the new pool alone."""
    new = MemcachedProxyOfNew(nodes)
    try:
        words = [sys.executable, str(RECIPES / "copy-items"), *new.words(sources)]
        copied = subprocess.run(words, check=True, capture_output=True, text=True, timeout=fleet.PATIENCE)
        print(f"  {copied.stdout.strip()}", flush=True)
    finally:
        new.stop()


def is_left_alone(nodes, load):
    before = [node.requests() for node in nodes]
    load.more(100)
    return before == [node.requests() for node in nodes]


def migration(nodes):
    """A pool of memcached becomes one of coua and memcached again, without an error or a miss."""
    memcached = [Node(MEMCACHED) for _ in nodes]
    front = MemcachedProxy("sharding.lua", memcached)
    try:
        load = Load(front.client)
        one_each(load.holders(memcached))
        for old, new, where in [(memcached, nodes, "to coua"), (nodes, memcached, "back to memcached")]:
            # What lay there before is older.
            for node in new:
                Connection(node.port).request(b"flush_all\r\n", b"OK")
            load.start()
            load.more(300)
            front.exchange(old, new)
            load.more(1000)
            # Twice, as memcached's list of keys leaves out items that somebody uses at that moment.
            copy_items(old, new)
            copy_items(old, new)
            load.more(1000)
            front.configure(new)
            # Each thread of the proxy takes the new routes by itself.
            await_("the old servers are left alone", lambda: is_left_alone(old, load))
            # The proxy leaves a server alone for a while that has refused a connection, also when it is configured anew:
            # so only those are ended that do not come back.
            for node in old if new is memcached else ():
                node.kill()
            load.more(2000)
            well(load.stop(), front, where)
            one_each(load.holders(new))
    finally:
        front.stop()
        for node in memcached:
            node.kill()


class MemcachedProxyOfNew:
    """A proxy for copy-items alone, before the servers that the pool will have."""

    def __init__(self, nodes):
        path = FOLDER / "new.lua"
        backends = ", ".join(f'"{node.address}"' for node in nodes)
        path.write_text(
            f"pools{{ all = {{ backends = {{ {backends} }} }} }}\nroutes{{ default = route_direct{{ child = 'all' }} }}\n"
        )
        port = free_port()
        words = [MEMCACHED, "-l", "127.0.0.1", "-p", str(port), "-u", "root"]
        self.program = Program([*words, "-o", f"proxy_config=routelib,proxy_arg={path}"], port)

    def words(self, sources):
        sources = [word for node in sources for word in ("--from", node.address)]
        return [*sources, "--to", f"127.0.0.1:{self.program.port}"]

    def stop(self):
        self.program.kill()


def failover(nodes):
    """memcached's proxy with a second server for each key: no errors, and misses of the victim's keys alone."""
    front = MemcachedProxy("failover.lua", nodes)
    try:
        load, before, victim, of_victim = fails_over(front, nodes)
        one_each(before)
        well(load.stop(), front, "one killed", misses=of_victim)
        check(moved(before, load.holders(nodes)) == of_victim, "keys of servers that live have moved")
        load.start()
        victim.start()
        await_("the victim is asked again", lambda: len(victim.values()) > len(of_victim) / 2)
        # Each thread of the proxy tries it by itself: until the last one has, keys have two values.
        well(load.stop(), front, "back", misses=of_victim, stale=of_victim)

        def all_back():
            return not moved(before, load.holders(nodes))

        await_("all keys are where they were", all_back)
        load.start()
        load.more(300)
        victim.kill()
        load.more(2000)
        # What the second server still has from the first time: a minute old at most.
        well(load.stop(), front, "killed again", misses=of_victim, stale=of_victim)
        client = front.client()
        client.get(min(of_victim))
        shortens(client, min(of_victim))
    finally:
        front.stop()


def shortens(client, key):
    """On the second server everything lives for a minute, at most."""
    for store in (b"set %s 0 0 1", b"set %s 0 500 1", b"add %s 0 500 1", b"cas %s 0 500 1 %s", b"ms %s 1", b"ms %s 1 T500"):
        if store.startswith(b"cas"):
            client.socket.sendall(b"mg %s c\r\n" % key)
            store = store % (key, client.line().split(b"c")[-1])
        else:
            store = store % key
        if store.startswith(b"add"):
            client.socket.sendall(b"delete %s\r\nmd %s\r\n" % (key, key))
            # Deletes fail while the first server is down: it may come back with the item.
            for _ in range(2):
                try:
                    client.line()
                except Failure:
                    continue
                raise AssertionError("a delete that has not reached the first server succeeds")
            continue
        client.socket.sendall(b"%s\r\nx\r\nmg %s t\r\n" % (store, key))
        check(client.line() in (b"HD", b"STORED"), f"{store!r} stores")
        left = int(client.line().split(b"t")[-1])
        check(0 < left <= 60, f"after {store!r} the item has {left} s left on the second server")


def replicas(nodes):
    """memcached's proxy with each key on two servers: neither errors nor misses."""
    front = MemcachedProxy("replicas.lua", nodes)
    try:
        load = Load(front.client)
        before = load.holders(nodes)
        few = [key for key, on in before.items() if len(on) != 2]
        check(not few, f"keys that are not on two servers: {few[:5]}")
        victim = nodes[1]
        load.start()
        load.more(300)
        victim.kill()
        load.more(3000)
        well(load.stop(), front, "one killed")
        load.start()
        victim.start()
        await_("the victim is written to again", lambda: len(victim.values()) > 100)
        load.more(1000)
        well(load.stop(), front, "back")

        def all_back():
            return not moved(before, load.holders(nodes))

        await_("all keys are where they were", all_back)
    finally:
        front.stop()


def main():
    wanted = sys.argv[4:]
    for scenario in (sharding, migration, failover, replicas, nutcracker, ketama):
        if wanted and scenario.__name__ not in wanted:
            continue
        print(f"{scenario.__name__}: {scenario.__doc__ or ''}".strip(), flush=True)
        nodes = [Node(COUA) for _ in range(3)]
        try:
            scenario(nodes)
        finally:
            for node in nodes:
                node.kill()
    shutil.rmtree(FOLDER)
    print("a fleet: all well")


main()

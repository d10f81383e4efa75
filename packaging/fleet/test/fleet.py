"""Servers of a fleet, and a load on it that knows what each answer may be."""

import random
import signal
import socket
import subprocess
import threading
import time

# The test fails if something has not happened after so many seconds. Nothing else depends on time.
PATIENCE = 60
KEYS = [b"item:%05d" % number for number in range(6000)]
THREADS = 3


class Failure(Exception):
    """A request without a result. `lost` says that the connection is gone, too."""

    def __init__(self, text, lost=False):
        super().__init__(text)
        self.lost = lost


def await_(what, condition):
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.02)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Program:
    """A process that listens on a port of loopback."""

    def __init__(self, words, port):
        self.words, self.port = words, port
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        await_(f"{self.words[0]} listens", self.listens)

    def listens(self):
        if self.process.poll() is not None:
            raise AssertionError(f"{self.words} ended with {self.process.returncode}")
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE) as connection:
                # Where nobody listens yet, the kernel may choose this very port for our end.
                return connection.getsockname() != connection.getpeername()
        except OSError:
            return False

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Node(Program):
    """A coua, or a memcached."""

    def __init__(self, program):
        port = free_port()
        super().__init__([program, "-l", "127.0.0.1", "-p", str(port), "-u", "root", "-m", "64", "-t", "2"], port)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def requests(self):
        """How many items were asked for and stored."""
        connection = Connection(self.port)
        connection.request(b"mn\r\n", b"MN")
        connection.socket.sendall(b"stats\r\n")
        count = 0
        while (line := connection.line()) != b"END":
            _, name, value = line.split(b" ", 2)
            if name in (b"cmd_get", b"cmd_set", b"cmd_touch"):
                count += int(value)
        connection.socket.close()
        return count

    def values(self):
        """What it has of all keys."""
        connection, values = Connection(self.port), {}
        for at in range(0, len(KEYS), 100):
            values.update(connection.get_many(KEYS[at : at + 100]))
        return values


class Connection:
    """Classic text over one connection, which is opened anew after it was lost."""

    def __init__(self, port):
        self.port, self.socket = port, None

    def request(self, request, end):
        try:
            if self.socket is None:
                self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)
                self.stream = self.socket.makefile("rb")
            self.socket.sendall(request)
            return self.answer(end)
        except OSError as error:
            self.socket = None
            raise Failure(str(error), lost=True) from error

    def line(self):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionResetError("the connection was closed")
        if b"ERROR" in line:
            raise Failure(line.decode().strip())
        return line[:-2]

    def answer(self, end):
        values = {}
        while True:
            line = self.line()
            if line == end:
                return values
            word, key, _, length = line.split()
            if word != b"VALUE":
                raise AssertionError(f"an answer out of order: {line!r}")
            values[key] = self.stream.read(int(length) + 2)[:-2]

    def get_many(self, keys):
        return self.request(b"get %s\r\n" % b" ".join(keys), b"END")

    def get(self, key):
        values = self.get_many([key])
        if set(values) - {key}:
            raise AssertionError(f"an answer for another key: asked for {key!r}, got {list(values)}")
        return values.get(key)

    def set(self, key, value):
        self.request(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value), b"STORED")


class Counts:
    """What a load has seen, by key."""

    def __init__(self):
        self.requests, self.lost = 0, 0
        self.errors, self.misses, self.stale, self.wrong = {}, {}, {}, []

    @staticmethod
    def add(where, key):
        where[key] = where.get(key, 0) + 1

    def __str__(self):
        total = lambda counts: sum(counts.values())  # noqa: E731
        return (
            f"{self.requests} requests: {total(self.errors)} errors, {self.lost} connections lost, "
            f"{total(self.misses)} misses, {total(self.stale)} stale, {len(self.wrong)} wrong"
        )


class Load:
    """Readers and writers. Each key belongs to one thread, which knows its last value."""

    def __init__(self, client):
        self.client = client
        # The last value that was stored for certain, and the last one that was sent.
        self.stored, self.sent = {}, dict.fromkeys(KEYS, 0)
        self.counts, self.stopping, self.threads = Counts(), False, []
        self.lock = threading.Lock()

    def value(self, key, number):
        # One in fifty is longer than what proxies and servers read at once.
        length = 20_000 if key[-2:] in (b"07", b"57") else 60 + number % 40
        return b"%s=%d=" % (key, number) + b"v" * length

    def store(self, client, key):
        self.sent[key] += 1
        client.set(key, self.value(key, self.sent[key]))
        self.stored[key] = self.sent[key]

    def store_all(self):
        """Stores a new value for each key, however often it takes."""
        client = self.client()
        for key in KEYS:

            def is_stored(key=key):
                try:
                    self.store(client, key)
                    return True
                except Failure:
                    return False

            await_(f"{key!r} is stored", is_stored)

    def start(self):
        self.counts, self.stopping = Counts(), False
        self.threads = [threading.Thread(target=self.run, args=(at,), daemon=True) for at in range(THREADS)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.stopping = True
        for thread in self.threads:
            thread.join()
        return self.counts

    def more(self, requests):
        """Waits until so many more requests were made."""
        enough = self.counts.requests + requests
        await_("the load goes on", lambda: self.counts.requests >= enough or not any(t.is_alive() for t in self.threads))

    def run(self, at):
        chance, client, own = random.Random(at), self.client(), KEYS[at::THREADS]
        while not self.stopping:
            key = chance.choice(own)
            try:
                if chance.random() < 0.3:
                    self.store(client, key)
                else:
                    self.look(client, key)
            except Failure as failure:
                with self.lock:
                    if failure.lost:
                        self.counts.lost += 1
                    else:
                        self.counts.add(self.counts.errors, key)
                if failure.lost:
                    time.sleep(0.02)
            except AssertionError as error:
                self.counts.wrong.append(str(error))
                return
            with self.lock:
                self.counts.requests += 1

    def look(self, client, key):
        value = client.get(key)
        if value is None:
            with self.lock:
                self.counts.add(self.counts.misses, key)
            self.store(client, key)
            return
        name, number, _ = value.split(b"=", 2)
        number = int(number)
        if name != key or value != self.value(key, number) or number > self.sent[key]:
            self.counts.wrong.append(f"{key!r} has {value[:40]!r}")
        elif number < self.stored[key]:
            with self.lock:
                self.counts.add(self.counts.stale, key)
            self.store(client, key)

    def holders(self, nodes):
        """Stores all keys anew, and returns which nodes have the new value of each."""
        self.store_all()
        found = {key: set() for key in KEYS}
        for node in nodes:
            if node.process.poll() is None:
                for key, value in node.values().items():
                    if value == self.value(key, self.stored[key]):
                        found[key].add(node)
        return found

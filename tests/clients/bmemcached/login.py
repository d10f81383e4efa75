"""python-binary-memcached logs in by SASL PLAIN at HOST PORT, where alice's password is secret and bob may only read; over
TLS where a third word names the authority's certificate."""

import ssl
import sys

import bmemcached
from bmemcached.exceptions import MemcachedException

AUTH_ERROR = 0x20


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"bmemcached login: {what}: got {got!r}, wanted {wanted!r}")


def refused(what, operation):
    # The client has another number for a refused login, and so tells of the status alone.
    try:
        got = operation()
    except MemcachedException as error:
        check(what, error.code, AUTH_ERROR)
    else:
        sys.exit(f"bmemcached login: {what}: got {got!r}, wanted the status {AUTH_ERROR}")


def main():
    address = f"{sys.argv[1]}:{sys.argv[2]}"

    context = ssl.create_default_context(cafile=sys.argv[3]) if len(sys.argv) > 3 else None

    def client(user, password):
        return bmemcached.Client([address], user, password, socket_timeout=20, tls_context=context)

    alice = client("alice", "secret")
    check("set", alice.set("k", "value"), True)
    check("get", alice.get("k"), "value")
    large = bytes(range(256)) * 3600
    check("set large", alice.set("large", large, compress_level=0), True)
    check("get large", alice.get("large"), large)
    alice.disconnect_all()
    check("get on a new connection", alice.get("k"), "value")
    refused("a wrong password", lambda: client("alice", "wrong").get("k"))
    refused("nobody", lambda: client("nobody", "secret").get("k"))
    bob = client("bob", "pa:ss word")
    check("get of who may read", bob.get("k"), "value")
    refused("set of who may read", lambda: bob.set("k", "other"))
    check("get afterwards", alice.get("k"), "value")
    print("bmemcached login: all well")


main()

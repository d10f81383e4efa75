"""pymemcache logs in by a pretended set at HOST PORT, where alice's password is secret and bob may only read; over TLS
where a third word names the authority's certificate."""

import ssl
import sys

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError


def check(what, got, wanted):
    if got != wanted:
        sys.exit(f"pymemcache login: {what}: got {got!r}, wanted {wanted!r}")


def refused(what, words, operation):
    try:
        got = operation()
    except MemcacheClientError as error:
        check(what, error.args[0], words)
    else:
        sys.exit(f"pymemcache login: {what}: got {got!r}, wanted {words!r}")


def main():
    address = (sys.argv[1], int(sys.argv[2]))
    context = ssl.create_default_context(cafile=sys.argv[3]) if len(sys.argv) > 3 else None

    def stranger():
        return Client(address, timeout=20, default_noreply=False, tls_context=context)

    def logged_in(words):
        client = stranger()
        check(f"login {words}", client.set("login", words), True)
        return client

    refused("get of a stranger", b"unauthenticated", lambda: stranger().get("k"))
    refused("a wrong password", b"authentication failure", lambda: stranger().set("login", "alice wrong"))
    refused("no password", b"bad authentication token format", lambda: stranger().set("login", "alice"))
    alice = logged_in("alice secret")
    check("set", alice.set("k", "value"), True)
    check("get", alice.get("k"), b"value")
    check("the login is no item", alice.get("login"), None)
    check("get_many", alice.get_many(["k", "none"]), {"k": b"value"})
    bob = logged_in("bob pa:ss word")
    check("get of who may read", bob.get("k"), b"value")
    refused("set of who may read", b"permission denied", lambda: bob.set("k", "other"))
    # The client has closed the connection.
    bob = logged_in("bob pa:ss word")
    refused("delete of who may read", b"permission denied", lambda: bob.delete("k"))
    check("get afterwards", alice.get("k"), b"value")
    print("pymemcache login: all well")


main()

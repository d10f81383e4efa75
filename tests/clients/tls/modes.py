"""TLS as Python's ssl speaks it, to the server at HOST PORT, with certificates from FOLDER.

`modes` prints which clients are served: with each version of TLS, without a certificate, with their own, and with one of an
authority that the server does not know; and whether a client refuses a server that it does not trust. `load` connects, asks
and leaves until FOLDER has a file `stop`, prints `seen N` when it sees the server's Nth certificate, and at the end how many
connections it had.
"""

import os
import socket
import ssl
import sys

VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


def context(folder, authority, certificate, version):
    made = ssl.create_default_context(cafile=f"{folder}/{authority}.pem")
    made.minimum_version = made.maximum_version = VERSIONS[version]
    if certificate != "none":
        made.load_cert_chain(f"{folder}/{certificate}.pem", f"{folder}/{certificate}.key")
    return made


def talk(address, made, length):
    """Stores and reads a value; returns the server's certificate."""
    with socket.create_connection(address, timeout=30) as plain:
        with made.wrap_socket(plain, server_hostname=address[0]) as client:
            value = b"v" * length
            client.sendall(b"set tls 0 0 %d\r\n%s\r\nget tls\r\n" % (length, value))
            wanted = b"STORED\r\nVALUE tls 0 %d\r\n%s\r\nEND\r\n" % (length, value)
            got = b""
            while len(got) < len(wanted):
                piece = client.recv(65536)
                if not piece:
                    raise ConnectionError("the server has hung up")
                got += piece
            if got != wanted:
                sys.exit(f"python: wrong answer {got[:100]}")
            return client.getpeercert(binary_form=True)


def attempt(address, *words):
    try:
        talk(address, context(*words), 100_000)
        return "served"
    except TimeoutError:
        sys.exit("python: the server says nothing")
    except (ssl.SSLError, ConnectionError):
        return "refused"


def main():
    what, host, port, folder = sys.argv[1:]
    address = (host, int(port))
    if what == "modes":
        for version in VERSIONS:
            for certificate in ("none", "client", "foreign"):
                print(version, certificate, attempt(address, folder, "ca", certificate, version))
            print(version, "distrust", attempt(address, folder, "strangers", "client", version))
        return
    count, seen = 0, set()
    while not os.path.exists(f"{folder}/stop"):
        version = ("1.2", "1.3")[count % 2]
        certificate = talk(address, context(folder, "ca", "client", version), 10)
        if certificate not in seen:
            seen.add(certificate)
            print("seen", len(seen), flush=True)
        count += 1
    print(count, "connections")


main()

"""Fills the server at HOST PORT with more than 256 MiB of values, as the environment says how to connect."""

import os
import socket
import ssl
import sys

COUNT, LENGTH = 500, 700_000


def connect(address):
    client = socket.create_connection(address, timeout=60)
    if "TLS_CA" in os.environ:
        context = ssl.create_default_context(cafile=os.environ["TLS_CA"])
        if "TLS_CERTIFICATE" in os.environ:
            context.load_cert_chain(os.environ["TLS_CERTIFICATE"], os.environ["TLS_KEY"])
        client = context.wrap_socket(client, server_hostname=address[0])
    return client


def main():
    client = connect((sys.argv[1], int(sys.argv[2])))
    answers = client.makefile("rb")

    def ask(request, wanted):
        client.sendall(request)
        answer = answers.readline()
        if answer != wanted:
            sys.exit(f"fill: {request[:40]!r} is answered {answer!r}")

    if "LOGIN_USER" in os.environ and "TLS_CERTIFICATE" not in os.environ:
        login = f"{os.environ['LOGIN_USER']} {os.environ['LOGIN_PASSWORD']}".encode()
        ask(b"set login 0 0 %d\r\n%s\r\n" % (len(login), login), b"STORED\r\n")
    value = os.urandom(LENGTH)
    for number in range(COUNT):
        ask(b"set fill%d 0 0 %d\r\n%s\r\n" % (number, LENGTH, value), b"STORED\r\n")


main()

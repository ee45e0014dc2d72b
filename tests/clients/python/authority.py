"""Prints the `:authority` of the first call that comes to SOCKET, and ends: `authority.py SOCKET`."""

import os
import socket
import sys

import hpack

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# Types of frames, and flags of a HEADERS frame (RFC 9113, section 6).
HEADERS, SETTINGS = 1, 4
PADDED, PRIORITY = 0x8, 0x20


def read(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            sys.exit("the client went away before its first call")
        data += part
    return data


def first_headers(connection):
    """The header block of the first HEADERS frame, whole in every client's first call."""
    assert read(connection, len(PREFACE)) == PREFACE
    connection.sendall(bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0]))
    while True:
        head = read(connection, 9)
        payload = read(connection, int.from_bytes(head[:3], "big"))
        if head[3] != HEADERS:
            continue
        padding = payload[0] if head[4] & PADDED else 0
        skipped = bool(head[4] & PADDED) + 5 * bool(head[4] & PRIORITY)
        return payload[skipped:len(payload) - padding]


def main(path):
    with socket.socket(socket.AF_UNIX) as listener:
        # Under its name it is there only once it listens.
        listener.bind(f"{path}.new")
        listener.listen()
        os.rename(f"{path}.new", path)
        connection, _ = listener.accept()
        with connection:
            fields = dict(hpack.Decoder().decode(first_headers(connection)))
    print(fields.get(":authority", "(none)"))


main(*sys.argv[1:])

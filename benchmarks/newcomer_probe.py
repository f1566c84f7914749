"""New clients beside an attack: `python -m benchmarks.newcomer_probe KIND PORT SECONDS [TOKEN]`.

Twenty times a second one connects from an address that the attackers do not have, is served once and hangs
up. KIND says by what: `plain`, `tls` (a handshake), `login` (OAUTHBEARER with TOKEN), `http` (/live, /ready
and /metrics in turn). Says `ready` before the first, and at the end in JSON how long each took, from when it
was due, and how many were not served within ten seconds, or turned away.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable

from benchmarks import wire

PERIOD_S = 0.05
PATIENCE_S = 10.0
OWN_ADDRESS = "127.0.0.1"
API_VERSIONS = bytes.fromhex("0000000a 0012 0000 00000001 ffff")
PATHS = ("/live", "/ready", "/metrics")

Serve = Callable[[socket.socket, int], None]


def plain(connection: socket.socket, _: int) -> None:
    wire.ask(connection, API_VERSIONS)


def tls() -> Serve:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE

    def serve(connection: socket.socket, number: int) -> None:
        with context.wrap_socket(connection) as secure:
            plain(secure, number)

    return serve


def login(token: str) -> Serve:
    def serve(connection: socket.socket, _: int) -> None:
        wire.ask(connection, sasl_handshake("OAUTHBEARER"))
        answer = wire.ask(connection, sasl_token(token))
        if answer[4:6] != b"\0\0":
            raise ConnectionError("the login was refused")

    return serve


def http(connection: socket.socket, number: int) -> None:
    connection.sendall(f"GET {PATHS[number % len(PATHS)]} HTTP/1.0\r\n\r\n".encode())
    answer = b""
    while piece := connection.recv(1 << 16):
        answer += piece
    if not answer.startswith(b"HTTP/1.1 200"):
        raise ConnectionError("turned away")


def sasl_handshake(mechanism: str) -> bytes:
    body = struct.pack(">hhihh", 17, 1, 1, -1, len(mechanism)) + mechanism.encode()
    return struct.pack(">i", len(body)) + body


def sasl_token(token: str) -> bytes:
    message = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
    body = struct.pack(">hhihi", 36, 1, 1, -1, len(message)) + message
    return struct.pack(">i", len(body)) + body


def run(port: int, seconds: float, serve: Serve) -> dict[str, object]:
    samples: list[float] = []
    failures = 0
    lock = threading.Lock()

    def once(number: int, due: float) -> None:
        nonlocal failures
        served = False
        with contextlib.suppress(OSError), wire.connect(port, PATIENCE_S, OWN_ADDRESS) as connection:
            serve(connection, number)
            served = True
        with lock:
            samples.append(time.monotonic() - due)
            failures += not served

    began = time.monotonic()
    threads = []
    for number in range(int(seconds / PERIOD_S)):
        due = began + number * PERIOD_S
        time.sleep(max(0.0, due - time.monotonic()))
        # A thread for each, so that one that waits keeps no other from coming.
        threads.append(threading.Thread(target=once, args=(number, due), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(3 * PATIENCE_S)
    return {"samples": samples, "failures": failures}


def main(kind: str, port: int, seconds: float, token: str = "") -> None:
    kinds: dict[str, Callable[[], Serve]] = {
        "plain": lambda: plain,
        "tls": tls,
        "login": lambda: login(token),
        "http": lambda: http,
    }
    serve = kinds[kind]()
    print("ready", flush=True)
    print(json.dumps(run(port, seconds, serve)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])

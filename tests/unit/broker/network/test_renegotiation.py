"""A client of TLS 1.2 that asks for a renegotiation without end: refused once, and gone."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from tests.rigs.tls_files import TlsFiles
from tests.rigs.tls_network import DEADLINE_S, TlsNetwork, ask
from tlslite.api import HandshakeSettings, TLSConnection
from tlslite.messages import ClientHello

REQUESTS = 300
ALERT = 21
ECDHE_RSA_AES128_GCM = 0xC02F


class Tap:
    """A socket that keeps what is sent from a moment on, for one blow."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.kept: bytearray | None = None

    def send(self, data: bytes) -> int:
        if self.kept is None:
            return self._sock.send(data)
        self.kept += data
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


def requests(tap: Tap) -> bytes:
    """Shakes hands, and gives what asks for as many renegotiations, encrypted for that connection."""
    connection = TLSConnection(tap)
    settings = HandshakeSettings()
    settings.minVersion = settings.maxVersion = (3, 3)
    connection.handshakeClientCert(settings=settings)
    tap.kept = bytearray()
    for _ in range(REQUESTS):
        hello = ClientHello()
        hello.create((3, 3), bytearray(32), bytearray(), [ECDHE_RSA_AES128_GCM], extensions=[])
        for _ in connection._sendMsg(hello):
            pass
    return bytes(tap.kept)


def records(data: bytes) -> list[int]:
    """The types of TLS records."""
    types = []
    while data:
        types.append(data[0])
        data = data[5 + int.from_bytes(data[3:5], "big") :]
    return types


def test_one_request_is_refused_and_the_connection_ends_whatever_follows(tmp_path: Path) -> None:
    with TlsNetwork(TlsFiles(tmp_path)) as served:
        with served.raw() as sock:
            sock.settimeout(DEADLINE_S)
            sock.sendall(requests(Tap(sock)))
            answer = b""
            try:
                while piece := sock.recv(65536):
                    answer += piece
            except ConnectionResetError:
                # What it had not read when it closed the connection was thrown away.
                pass
        served.wait_until(lambda: served.network.sockets == 0)
        # The refusal, and the farewell.
        assert set(records(answer)) == {ALERT}
        assert len(records(answer)) <= 2
        with served.client() as client:
            assert ask(client, b"x") == b"x"

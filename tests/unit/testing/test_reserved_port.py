"""A reserved port is nobody else's, and a server that is told of it can use it again and again."""

from __future__ import annotations

import socket
import struct
import sys
from pathlib import Path

import pytest

from tidelog.testing.broker_process import BrokerProcess
from tidelog.testing.reserved_port import ReservedPort

IP_LOCAL_PORT_RANGE = 51
"""From Linux 6.3 on; Python has no name for it."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ports are shared in this way on Linux alone")


def listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port))


def test_a_server_listens_where_a_port_is_reserved_and_comes_back_to_it() -> None:
    with ReservedPort() as reserved:
        for _ in range(2):
            with listen(reserved.port), socket.create_connection(("127.0.0.1", reserved.port), 60):
                pass
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", reserved.port), 60)


def test_nobody_who_asks_for_any_port_is_given_a_reserved_one() -> None:
    with ReservedPort() as reserved, socket.socket() as other:
        only = struct.pack("=I", reserved.port << 16 | reserved.port)
        try:
            other.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, only)
        except OSError:
            pytest.skip("this Linux is older than 6.3: any port may be given out, not this one alone")
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", 0))


def test_a_broker_that_was_killed_still_has_its_port(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        port = broker.port
        broker.kill()
        with pytest.raises(OSError, match="in use"), socket.socket() as other:
            other.bind(("127.0.0.1", port))
        assert broker.restart().port == port
    with listen(port):
        pass

"""A peer that sends records without data cannot keep a read from coming back."""

from __future__ import annotations

import contextlib
import select
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.rigs.tls_files import TlsFiles

from tidelog.security.tls.one_record import come_back_after_each_record

REQUESTS = 20
DEADLINE_S = 30.0


@contextlib.contextmanager
def server_of_a_client_that_wants_new_keys(directory: Path) -> Iterator[ssl.SSLSocket]:
    """The server's end of a connection on which so many requests for new keys have come, and nothing else."""
    files = TlsFiles(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(DEADLINE_S)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        command = ["openssl", "s_client", "-connect", address, "-tls1_3"]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            accepted, _ = listener.accept()
            accepted.settimeout(DEADLINE_S)
            with context.wrap_socket(accepted, server_side=True) as tls:
                for _ in range(REQUESTS):
                    client.stdin.write(b"k\n")
                    client.stdin.flush()
                    while b"KEYUPDATE" not in client.stdout.readline():
                        assert client.poll() is None
                yield tls
            client.kill()


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
@pytest.mark.parametrize("comes_back", [False, True])
def test_a_read_ends_with_each_request_for_new_keys(tmp_path: Path, comes_back: bool) -> None:
    with server_of_a_client_that_wants_new_keys(tmp_path) as tls:
        if comes_back:
            assert come_back_after_each_record(tls)
        tls.setblocking(False)
        reads = 0
        awaited = REQUESTS if comes_back else 1
        # The client tells of a request before it has sent it: the last may be under way.
        while reads < REQUESTS and select.select([tls], [], [], DEADLINE_S if reads < awaited else 0)[0]:
            with pytest.raises(ssl.SSLWantReadError):
                tls.recv(100)
            reads += 1
        # Otherwise one read takes all that there are, for as long as more of them come.
        assert reads == REQUESTS if comes_back else reads < REQUESTS


def test_what_is_no_connection_is_not_touched() -> None:
    context = ssl.create_default_context()
    with context.wrap_socket(socket.socket(), server_hostname="localhost") as tls:
        assert not come_back_after_each_record(tls)

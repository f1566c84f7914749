"""Whether the kernel encrypts what is sent (kTLS), so that files can go from the disk to the network in it.

It takes a Linux with the module ``tls``, OpenSSL 3 that was built for it, and a cipher that the kernel has;
so each connection has to be asked, after its handshake.
"""

from __future__ import annotations

import socket
import ssl

OP_ENABLE_KTLS = 8
"""OpenSSL's number; Python has a name for it from 3.12 on."""

_SOL_TLS = 282
_TLS_TX = 1
_TCP_ULP = 31
_STATE_BYTES = 4


def is_offered() -> bool:
    """Whether this machine's kernel and OpenSSL could encrypt in the kernel."""
    if ssl.OPENSSL_VERSION_INFO < (3, 0):
        return False
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as probe,
        ):
            probe.setsockopt(socket.IPPROTO_TCP, _TCP_ULP, b"tls")
    except OSError:
        return False
    return True


def encrypts(sock: socket.socket) -> bool:
    """Whether the kernel encrypts what is sent on this socket, whose handshake is over."""
    try:
        sock.getsockopt(_SOL_TLS, _TLS_TX, _STATE_BYTES)
    except OSError:
        return False
    return True

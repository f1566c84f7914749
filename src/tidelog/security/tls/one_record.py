"""Has OpenSSL come back to its caller, where a peer could keep it from coming back at all.

Python asks OpenSSL to go on by itself when a record held something else than data (``SSL_MODE_AUTO_RETRY``).
In TLS 1.3 a client may send requests for new keys (KeyUpdate) without end, and as fast as they are handled:
one read would then last for as long as it likes, without having logged in, and with it the loop of a broker.
Without that mode the read ends (``SSLWantReadError``) and others have their turn.

In TLS 1.2 it may ask for a renegotiation without end. Each request is refused, and whatever the mode OpenSSL
goes on with the next. After the first refusal the connection passes for one that the peer has shut down: a
read finds its end, as Kafka closes it.

Python has no way to do either, so that OpenSSL's own functions are called. The pointer that this takes stands
behind an object's head and a reference; the next one must be that to the context, which is known, and where
it is not, or there are no such functions to be found (a Python with OpenSSL built in), nothing is touched.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable
from typing import NamedTuple

_CLEAR_MODE = 78
_AUTO_RETRY = 4
_WRITTEN_ALERT = 0x4008
_NO_RENEGOTIATION = 0x0164
_RECEIVED_SHUTDOWN = 2


class _Functions(NamedTuple):
    """What is called of OpenSSL; the callback lives as long as the connections that have it."""

    control: Callable[[int, int, int, None], int]
    set_info_callback: Callable[[int, object], None]
    on_info: object


def come_back_after_each_record(tls: ssl.SSLSocket) -> bool:
    """Make sure of it for a connection whose handshake is done; whether that could be done."""
    functions = _functions()
    found = _pointer(tls)
    if functions is None or found is None:
        return False
    if tls.version() == "TLSv1.2":
        functions.set_info_callback(found, functions.on_info)
    return not functions.control(found, _CLEAR_MODE, _AUTO_RETRY, None) & _AUTO_RETRY


def _pointer(tls: ssl.SSLSocket) -> int | None:
    """Where OpenSSL has the connection; None where that is not sure."""
    connection = getattr(tls, "_sslobj", None)
    if connection is None:
        return None
    import ctypes

    pointer = ctypes.sizeof(ctypes.c_void_p)
    fields = id(connection) + object.__basicsize__ + pointer
    if connection.__sizeof__() < object.__basicsize__ + 3 * pointer:
        return None
    if ctypes.c_void_p.from_address(fields + pointer).value != id(tls.context):
        return None
    return ctypes.c_void_p.from_address(fields).value


@functools.cache
def _functions() -> _Functions | None:
    """Those of the OpenSSL that Python itself is linked with."""
    import _ssl
    import ctypes

    try:
        library = ctypes.CDLL(getattr(_ssl, "__file__", None))
        control, set_info, set_shutdown = (
            library.SSL_ctrl,
            library.SSL_set_info_callback,
            library.SSL_set_shutdown,
        )
    except (OSError, AttributeError):
        return None
    control.restype = ctypes.c_long
    control.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)
    set_info.restype = None
    set_info.argtypes = [ctypes.c_void_p, callback]
    set_shutdown.restype = None
    set_shutdown.argtypes = [ctypes.c_void_p, ctypes.c_int]

    def on_info(connection: int, kind: int, value: int) -> None:
        if kind == _WRITTEN_ALERT and value == _NO_RENEGOTIATION:
            set_shutdown(connection, _RECEIVED_SHUTDOWN)

    return _Functions(control, set_info, callback(on_info))

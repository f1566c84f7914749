"""Has OpenSSL come back after each record, so that a peer cannot keep it from coming back at all.

Python asks OpenSSL to go on by itself when a record held something else than data (``SSL_MODE_AUTO_RETRY``).
In TLS 1.3 a client may send requests for new keys (KeyUpdate) without end, and as fast as they are handled:
one read would then last for as long as it likes, without having logged in, and with it the loop of a broker.
Without that mode the read ends (``SSLWantReadError``) and others have their turn.

Python has no way to switch it off, so that OpenSSL's own is called. The pointer that this takes stands behind
an object's head and a reference; the next one must be that to the context, which is known, and where it is
not, or there are no such functions to be found (a Python with OpenSSL built in), nothing is touched.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable

_CLEAR_MODE = 78
_AUTO_RETRY = 4


def come_back_after_each_record(tls: ssl.SSLSocket) -> bool:
    """Switch the mode off for a connection whose handshake is done; whether that could be done."""
    control = _control()
    connection = getattr(tls, "_sslobj", None)
    if control is None or connection is None:
        return False
    import ctypes

    pointer = ctypes.sizeof(ctypes.c_void_p)
    fields = id(connection) + object.__basicsize__ + pointer
    if connection.__sizeof__() < object.__basicsize__ + 3 * pointer:
        return False
    if ctypes.c_void_p.from_address(fields + pointer).value != id(tls.context):
        return False
    found = ctypes.c_void_p.from_address(fields).value
    return found is not None and not control(found, _CLEAR_MODE, _AUTO_RETRY, None) & _AUTO_RETRY


@functools.cache
def _control() -> Callable[[int, int, int, None], int] | None:
    """OpenSSL's ``SSL_ctrl``, the one that Python itself is linked with."""
    import _ssl
    import ctypes

    try:
        function = ctypes.CDLL(getattr(_ssl, "__file__", None)).SSL_ctrl
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_long
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
    control: Callable[[int, int, int, None], int] = function
    return control

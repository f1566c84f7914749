"""``ssl`` reads private keys from files only: one that nobody else can read, for as long as that takes.

Where the system has files in memory (Linux) the key does not touch a disk.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")


def load_pair(context: ssl.SSLContext, pem: str, password: str | None) -> None:
    """Give ``context`` a private key and its certificates; ``ssl.SSLError`` if they are not usable."""
    with _private_file(pem.encode()) as path:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(path, password=lambda: password or "")


@contextmanager
def _private_file(content: bytes) -> Iterator[str]:
    if hasattr(os, "memfd_create") and _DESCRIPTORS.is_dir():
        descriptor = os.memfd_create("tls")
        try:
            os.write(descriptor, content)
            yield str(_DESCRIPTORS / str(descriptor))
        finally:
            os.close(descriptor)
        return
    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield name
    finally:
        Path(name).unlink()

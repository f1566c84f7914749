"""Lines from stdin or a file, without blocking the event loop while somebody types.

Pipes and terminals are waited for with the loop's reader; regular files, which cannot be waited for and never
keep anyone waiting, are read straight away. A line that has no end yet when the input ends is a line too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

_CHUNK = 1 << 16


async def input_lines(fd: int) -> AsyncIterator[bytes]:
    """Every line read from ``fd``, without its line end (``\\n`` or ``\\r\\n``)."""
    rest = b""
    while chunk := await _read(fd):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest.removesuffix(b"\r")


async def _read(fd: int) -> bytes:
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(fd, _settle, readable)
    except PermissionError:
        # The kernel's word for a file that is always readable; others want their turn between two reads.
        await asyncio.sleep(0)
        return os.read(fd, _CHUNK)
    try:
        await readable
    finally:
        loop.remove_reader(fd)
    return os.read(fd, _CHUNK)


def _settle(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)

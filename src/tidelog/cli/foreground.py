"""Commands that run other processes until they are told to stop: ``zookeeper start``, ``cluster start``.

The first Ctrl-C, SIGTERM or SIGHUP asks for an orderly end, a second Ctrl-C for an end at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from tidelog.cli.failure import Failure

HOST = "127.0.0.1"
ZOOKEEPER_PORT = 2181


class StopRequests:
    """What the person at the terminal, or the one who started us, asks for."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.hurry = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._on_signal, number)

    def _on_signal(self, number: signal.Signals) -> None:
        if self.stop.is_set() and number is signal.SIGINT:
            self.hurry.set()
        self.stop.set()


async def done_before(event: asyncio.Event, work: Coroutine[Any, Any, None]) -> bool:
    """Whether ``work`` ended before ``event``, which cancels it; what it raises is raised."""
    task = asyncio.create_task(work)
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
            return True
        return False
    finally:
        for each in (task, waiting):
            each.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(task, waiting, return_exceptions=True)


def require_free(ports: range, option: str) -> None:
    """Say which port is taken before anything is started."""
    for port in ports:
        if not is_free(port):
            raise Failure(
                f"port {port} is in use: choose another with {option}, or stop the program that "
                f"listens there ({option} 0 uses any free port)"
            )


def is_free(port: int) -> bool:
    """Whether nobody listens on this port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def make_directory(path: Path, option: str) -> Path:
    """``path`` as a directory that is there, with its whole name."""
    if path.exists() and not path.is_dir():
        raise Failure(f"{option} {path} is a file: specify a directory")
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()

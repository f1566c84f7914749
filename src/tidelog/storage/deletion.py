"""Deleting files later, so that whoever still reads them can finish.

What waits here is already renamed (``.deleted``, ``-delete``) and out of every registry; nobody can find it
any more. After ``file.delete.delay.ms`` it is removed. What a crash or a shutdown leaves is removed at the
next start, by its name. Fed by logs (segments) and ``log_dirs`` (whole partitions).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from tidelog.clock import Clock

_log = logging.getLogger(__name__)


class DelayedDeletion:
    """Files and directories in the order in which they fall due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, Path]] = []
        self._added: asyncio.Event | None = None
        self._stopped = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove ``paths`` in ``delay_ms``."""
        due = self._clock.monotonic_ms() + delay_ms
        for path in paths:
            heapq.heappush(self._waiting, (due, next(self._order), path))
        if self._added is not None:
            self._added.set()

    def follow(self, old: Path, new: Path) -> None:
        """The directory ``old`` has been renamed to ``new``: what waits inside goes with it."""
        self._waiting = [
            (due, order, new / path.name if path.parent == old else path)
            for due, order, path in self._waiting
        ]

    def take_due(self) -> list[Path]:
        """Everything whose time has come, oldest first; it no longer waits."""
        now = self._clock.monotonic_ms()
        due: list[Path] = []
        while self._waiting and self._waiting[0][0] <= now:
            due.append(heapq.heappop(self._waiting)[2])
        return due

    async def run(self, on_error: Callable[[Path, OSError], None]) -> None:
        """Remove things as they fall due, until :meth:`stop`."""
        self._added = asyncio.Event()
        while not self._stopped:
            # Before the work, not behind it: what is added, and a stop, while it goes on must be noticed.
            self._added.clear()
            await self.remove_due(on_error)
            if self._stopped:
                return
            timeout: float | None = None
            if self._waiting:
                timeout = max(self._waiting[0][0] - self._clock.monotonic_ms(), 1.0) / 1000
            try:
                await asyncio.wait_for(self._added.wait(), timeout)
            except TimeoutError:
                continue

    def stop(self) -> None:
        """Let :meth:`run` end; what still waits is removed at the next start."""
        self._stopped = True
        if self._added is not None:
            self._added.set()

    async def remove_due(self, on_error: Callable[[Path, OSError], None]) -> int:
        """Remove what is due, in a thread; gives back how many things went."""
        due = self.take_due()
        for path in due:
            try:
                await asyncio.to_thread(remove, path)
            except OSError as error:
                on_error(path, error)
        return len(due)


def remove(path: Path) -> None:
    """Remove a file or a whole directory; that it is already gone is no error."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
            _log.info("deleted %s", path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        _log.debug("%s is already gone", path)

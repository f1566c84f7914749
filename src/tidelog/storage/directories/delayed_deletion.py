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
from typing import Final

from tidelog.clock import Clock

# So many are taken to the thread at once: a stop waits for them, a turn of the loop makes their paths.
_BATCH_SIZE: Final = 256

logger = logging.getLogger(__name__)


class _Batch:
    """Things in one directory that fall due together."""

    __slots__ = ("directory", "due_ms", "names", "order")

    def __init__(self, due_ms: float, order: int, directory: Path) -> None:
        self.due_ms = due_ms
        self.order = order
        self.directory = directory
        self.names: list[str] = []

    def __lt__(self, other: _Batch) -> bool:
        return (self.due_ms, self.order) < (other.due_ms, other.order)


class DelayedDeletion:
    """Files and directories in the order in which they fall due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = itertools.count()
        self._waiting: list[_Batch] = []
        self._added: asyncio.Event | None = None
        self._stopped = False

    def __len__(self) -> int:
        return sum(len(batch.names) for batch in self._waiting)

    def add(self, paths: Iterable[Path], delay_ms: int) -> None:
        """Remove ``paths`` in ``delay_ms``."""
        due_ms = self._clock.monotonic_ms() + delay_ms
        batch: _Batch | None = None
        for path in paths:
            directory = path.parent
            if batch is None or batch.directory != directory:
                batch = _Batch(due_ms, next(self._order), directory)
                heapq.heappush(self._waiting, batch)
            batch.names.append(path.name)
        if self._added is not None:
            self._added.set()

    def follow(self, old: Path, new: Path) -> None:
        """The directory ``old`` has been renamed to ``new``: what waits inside goes with it."""
        for batch in self._waiting:
            if batch.directory == old:
                batch.directory = new

    def take_due(self, at_most: int | None = None) -> list[Path]:
        """What has fallen due, oldest first, or so much of it; it no longer waits."""
        now_ms = self._clock.monotonic_ms()
        due: list[Path] = []
        while self._waiting and self._waiting[0].due_ms <= now_ms and (at_most is None or len(due) < at_most):
            batch = self._waiting[0]
            taken = batch.names if at_most is None else batch.names[: at_most - len(due)]
            due += [batch.directory / name for name in taken]
            if len(taken) == len(batch.names):
                heapq.heappop(self._waiting)
            else:
                batch.names = batch.names[len(taken) :]
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
                timeout = max(self._waiting[0].due_ms - self._clock.monotonic_ms(), 1.0) / 1000
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
        removed = 0
        while due := self.take_due(_BATCH_SIZE):
            for path, error in await asyncio.to_thread(_remove_all, due):
                on_error(path, error)
            removed += len(due)
            if self._stopped:
                break
        return removed


def _remove_all(paths: list[Path]) -> list[tuple[Path, OSError]]:
    """Remove what can be removed; gives back what cannot, and why."""
    failures: list[tuple[Path, OSError]] = []
    for path in paths:
        try:
            remove(path)
        except OSError as error:
            failures.append((path, error))
    return failures


def remove(path: Path) -> None:
    """Remove a file or a whole directory; that it is already gone is no error."""
    try:
        if path.is_dir():
            shutil.rmtree(path)
            logger.info("deleted %s", path)
        else:
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        logger.debug("%s is already gone", path)

"""New producer ids for commands, which cannot wait for one.

A command that needs an id takes it with ``take``. Where the next block of ids has to be fetched first, that
raises :class:`ProducerIdNeeded` before the command has done anything; ``service`` then awaits ``refill`` and
runs the command again, on the shard as it is by then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from tidelog.promise import Promise


class ProducerIdSource(Protocol):
    """Where ids come from: ``metadata/producer_ids``, or a list in tests."""

    def next_id_nowait(self) -> int | None:
        """An id that nobody has, or None if it takes time to get one."""

    async def next_id(self) -> int:
        """The same, however long it takes."""


class ProducerIdNeeded(Exception):
    """There is no id at hand: ``refill``, then try again."""


class ProducerIdSupply:
    """The ids at hand."""

    def __init__(self, source: ProducerIdSource) -> None:
        self._source = source
        self._spare: deque[int] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self) -> int:
        """An id that nobody has; raises :class:`ProducerIdNeeded`."""
        if self._spare:
            return self._spare.popleft()
        taken = self._source.next_id_nowait()
        if taken is None:
            raise ProducerIdNeeded
        return taken

    def refill(self) -> Promise[None]:
        """Settled when ``take`` is worth another try."""
        fetched: Promise[None] = Promise()
        task = asyncio.get_running_loop().create_task(self._fetch(fetched))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return fetched

    async def _fetch(self, fetched: Promise[None]) -> None:
        try:
            self._spare.append(await self._source.next_id())
        except Exception as error:
            fetched.fail(error)
        else:
            fetched.resolve(None)

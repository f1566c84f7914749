"""New producer ids for commands, which cannot wait for one.

A command that needs an id takes it with ``take``. Where the next block of ids has to be fetched first, that
raises :class:`ProducerIdNeeded` before the command has done anything; ``service`` then awaits ``refill`` and
runs the command again, on the shard as it is by then.

All who wait have one fetch in common, which goes on when they have given up: metadata may be out of reach for
long, and the id is at hand as soon as it is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Protocol

from tidelog.errors import ErrorCode, KafkaError
from tidelog.scheduling.promise import Promise
from tidelog.scheduling.timers import Timers

WAIT_MS = 5000
"""So long a request waits for an id; then its client is told to come again, as Kafka tells it at once."""


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

    def __init__(self, source: ProducerIdSource, timers: Timers) -> None:
        self._source = source
        self._timers = timers
        self._spare: deque[int] = deque()
        self._waiting: dict[Promise[None], None] = {}
        self._fetching: asyncio.Task[None] | None = None

    def take(self) -> int:
        """An id that nobody has; raises :class:`ProducerIdNeeded`."""
        if self._spare:
            return self._spare.popleft()
        taken = self._source.next_id_nowait()
        if taken is None:
            raise ProducerIdNeeded
        return taken

    def refill(self) -> Promise[None]:
        """Settled when ``take`` is worth another try; COORDINATOR_LOAD_IN_PROGRESS if that takes too long."""
        fetched: Promise[None] = Promise()
        self._waiting[fetched] = None
        self._timers.schedule(fetched, WAIT_MS, lambda: self._give_up(fetched))
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        return fetched

    def close(self) -> None:
        """The broker stops: nobody will ask for the id any more."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _fetch(self) -> None:
        failure: Exception | None = None
        try:
            self._spare.append(await self._source.next_id())
        except Exception as error:
            failure = error
        # Some of those who wait may find nothing left, and begin the next fetch.
        self._fetching = None
        waiting, self._waiting = self._waiting, {}
        for fetched in waiting:
            self._timers.cancel(fetched)
            if failure is not None:
                fetched.fail(failure)
            else:
                fetched.resolve(None)

    def _give_up(self, fetched: Promise[None]) -> None:
        del self._waiting[fetched]
        fetched.fail(
            KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"No new producer ids could be had within {WAIT_MS} ms; try again.",
            )
        )

"""Produce requests that take long to judge, judged before anything of them is staged.

Most batches are judged while they are staged: a look at their header and a walk over their records, which the
event loop does not notice. Three kinds may take longer: compressed batches, of which a megabyte can hold a
gigabyte; batches that a topic wants under another codec; and large ones. These are begun on the loop, where
the usual ones are done after a moment, and finished in a thread. The request waits meanwhile, and so do those
behind it on its connection, so that order and sequence numbers stay as they were sent.

:class:`ValidationThreads` serves the request that has used the least time first: a batch that takes
milliseconds does not wait for batches that take seconds, however many there are. Now and then it serves the
request that has waited longest, so that long ones end, too.

Called by ``handlers/produce``.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from tidelog.errors import KafkaError
from tidelog.records.batch import CODEC_MASK, FLAGS_AT
from tidelog.replication.partition import Partition
from tidelog.storage.log.log_appender import Judged
from tidelog.storage.log.validation import Validation

MAX_PLAIN_BYTES: Final = 1024 * 1024 + 64
"""Up to this size an uncompressed batch is walked over while it is staged."""

# What is unpacked on the loop, about a millisecond; and in a thread, as much as others may have to wait for.
_BYTES_AT_ONCE: Final = 256 * 1024
_BYTES_IN_TURN: Final = 2 * 1024 * 1024
# What a batch costs at least, however little there is to unpack.
_BATCH_BYTES: Final = 4096
# Every so many turns are for the request that came first, whatever it has had.
_TURNS_BY_COST: Final = 4
# Whoever is gone is judged for only if there is little else to do.
_FEW: Final = 64

Validations = dict[int, Judged]
"""What became of the batches of a request, by the place of their bytes in its frame."""


def takes_long(partition: Partition | None, records: memoryview | None) -> bool:
    """Whether a batch is to be judged before it is staged."""
    if partition is None or records is None or len(records) <= FLAGS_AT or not partition.is_leader:
        return False
    return (
        records[FLAGS_AT] & CODEC_MASK != 0
        or len(records) > MAX_PLAIN_BYTES
        or partition.log.config.target_codec is not None
    )


class RequestValidation:
    """The batches of one request that take long; each judged once, the others as they are staged.

    ``is_wanted`` tells whether anybody still waits for it.
    """

    def __init__(
        self,
        batches: Sequence[tuple[int, Partition, memoryview]],
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.judged: Validations = {}
        self.is_wanted = is_wanted
        self.given_up = False
        """Whether it was not judged to its end, for nobody wanted it."""
        self.cost_bytes = 0
        """How much has been done for the request."""
        self._batches: Iterator[tuple[int, Partition, memoryview]] = iter(batches)
        self._key = 0
        self._current: Validation | None = None

    def advance(self, cost_bytes: int, *, in_thread: bool) -> bool:
        """Go on until that much is done; gives whether everything is judged.

        What only a thread may do, that is compress and unpack large blocks, is put off where this is none.
        """
        end = self.cost_bytes + cost_bytes
        while True:
            if self._current is None and not self._next():
                return True
            if self.cost_bytes >= end:
                return False
            judgement = self._current
            if judgement is None:
                continue
            if not in_thread and (judgement.compresses or judgement.next_bytes > end - self.cost_bytes):
                return False
            before = judgement.read_bytes
            try:
                done = judgement.advance(1)
                self.cost_bytes += max(judgement.read_bytes - before, _BATCH_BYTES)
                if done:
                    self._settle(judgement.result())
            except KafkaError as refusal:
                self.cost_bytes += _BATCH_BYTES
                self._settle(refusal)

    def _next(self) -> bool:
        """Begin the next batch; False if there is none."""
        batch = next(self._batches, None)
        if batch is None:
            return False
        self._key, partition, records = batch
        try:
            self._current = partition.log.appender.judge(records)
        except KafkaError as refusal:
            self.cost_bytes += _BATCH_BYTES
            self._settle(refusal)
        return True

    def _settle(self, judged: Judged) -> None:
        self.judged[self._key] = judged.without_history() if isinstance(judged, KafkaError) else judged
        self._current = None


class _Waiting(NamedTuple):
    """A request in the queue, with what it has had of the threads and when it came."""

    cost_bytes: int
    order: int
    request: RequestValidation
    when_done: Callable[[Exception | None], None]


class ValidationThreads:
    """Threads that judge requests, the one that has had the least of them first; started when needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int | None = None) -> None:
        self._loop = loop
        self._count = count or max(2, min(4, os.cpu_count() or 1))
        self._order = itertools.count()
        self._waiting: list[_Waiting] = []
        self._change = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._turns = 0
        self._closed = False

    @property
    def are_few(self) -> bool:
        """Whether little is waiting."""
        return len(self._waiting) < _FEW

    def judge(self, request: RequestValidation, when_done: Callable[[Exception | None], None]) -> None:
        """Judge a request; ``when_done`` is called on the loop, with what went wrong if something did."""
        with self._change:
            waiting = _Waiting(request.cost_bytes, next(self._order), request, when_done)
            heapq.heappush(self._waiting, waiting)
            self._change.notify()
        if len(self._threads) < self._count:
            thread = threading.Thread(target=self._run, name=f"judging-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """Stop the threads; whoever waits is forgotten."""
        with self._change:
            self._closed = True
            self._waiting.clear()
            self._change.notify_all()

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._waiting and not self._closed:
                    self._change.wait()
                if self._closed:
                    return
                _, order, request, when_done = self._next()
            failure: Exception | None = None
            try:
                request.given_up = not request.is_wanted()
                done = request.given_up or request.advance(_BYTES_IN_TURN, in_thread=True)
            except Exception as error:
                done, failure = True, error
            if done:
                self._tell(when_done, failure)
                continue
            with self._change:
                heapq.heappush(self._waiting, _Waiting(request.cost_bytes, order, request, when_done))

    def _next(self) -> _Waiting:
        waiting = self._waiting
        self._turns += 1
        if self._turns % _TURNS_BY_COST:
            return heapq.heappop(waiting)
        first = min(range(len(waiting)), key=lambda place: waiting[place].order)
        waiting[first], waiting[-1] = waiting[-1], waiting[first]
        found = waiting.pop()
        heapq.heapify(waiting)
        return found

    def _tell(self, when_done: Callable[[Exception | None], None], failure: Exception | None) -> None:
        try:
            self._loop.call_soon_threadsafe(when_done, failure)
        except RuntimeError:
            # The loop has been closed: there is nobody left to tell.
            if not self._loop.is_closed():
                raise


def validate_now(request: RequestValidation) -> bool:
    """Do on the loop what takes a moment; gives whether that was all."""
    return request.advance(_BYTES_AT_ONCE, in_thread=False)

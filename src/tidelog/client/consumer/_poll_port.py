"""``PollPort``: what a ``Consumer`` may ask of its core in the application's own thread, beside the loop.

A poll that finds records buffered wakes no other thread; for that it needs the members below, and nothing
else of the core. Everything else goes over the loop, on which the core's state lives.
``async_consumer.open_poll_port`` makes one; ``Consumer`` alone uses it, from one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple, Protocol

from tidelog.client.consumer._metrics import ConsumerTimes
from tidelog.client.consumer._quiet_time import QuietTime
from tidelog.client.consumer._wake_flag import WakeFlag
from tidelog.ids import TopicPartition
from tidelog.records.column_codec import RecordColumns
from tidelog.records.record_codec import ConsumerRecord


class TakeColumns(Protocol):
    """Takes all that is buffered, column by column."""

    def __call__(self, *, with_headers: bool) -> list[tuple[TopicPartition, RecordColumns]]: ...


class PollArrow(Protocol):
    """A whole poll for columns, to be run on the loop."""

    def __call__(self, timeout: float, *, with_headers: bool) -> Coroutine[Any, Any, Any]: ...


class PollPort(NamedTuple):
    """The short way of a poll."""

    is_closed: Callable[[], bool]
    needs_loop_in: Callable[[], float]
    """For how many seconds nothing but taking records is to be done; zero or less: the loop has its turn."""
    take_buffered: Callable[[int | None], list[ConsumerRecord]]
    """What an iteration has left behind, which ends it; else so many of the records that are buffered.

    Of those none where the loop has something to do first.
    """
    take_columns: TakeColumns
    begin_delivery: Callable[[list[ConsumerRecord]], Iterable[ConsumerRecord]]
    """The same records one by one: positions go on with those that the iteration has reached."""
    wake_flag: WakeFlag
    """Told when something has arrived."""
    times: ConsumerTimes
    """Told of every poll."""
    poll: Callable[[float, int | None], Coroutine[Any, Any, list[ConsumerRecord]]]
    """To be run on the loop: a whole poll, of which ``times`` is not told."""
    poll_arrow: PollArrow
    quiet_time: Callable[[float | None], QuietTime]
    """How long an iteration with this timeout waits."""

"""Where generated events go, and at what pace: to a broker in real time, or to files as fast as it goes.

``tidelog events generate`` and ``make run`` call :func:`deliver`. Events leave in the order of their arrival,
whole batches at a time; a stop is heard between two batches, so that the truth is that of what was sent.
The demo starts a process for it on a busy machine: what only some destinations need is loaded with them.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol

import msgspec

from tidelog.errors import ErrorCode
from tidelog.spark.pipelines.topics import PARTITIONS
from tidelog_rewards import events
from tidelog_rewards.generator.outbox import Event
from tidelog_rewards.generator.traffic import Traffic

if TYPE_CHECKING:
    from tidelog.client import Delivery, Producer

_TICK_S = 0.1
"""Each tick sends a batch to most partitions, and a batch costs more than the few records in it."""
_RECORDS_PER_STEP = 2_000

CLIENT_ID = "tidelog-events"
SIMULATED_TIME = {
    "retention.ms": "-1",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""Configs of topics whose records carry another time than today's: brokers would refuse or drop them."""


class Destination(Protocol):
    """Takes events; ``flush`` waits until they are safe and raises what went wrong."""

    def send(self, batch: Sequence[Event]) -> None: ...

    def flush(self) -> None: ...


class BrokerDestination:
    """Writes each event to its topic with a producer.

    It looks at the records' futures once in a while: a callback for each would be the long way to send.
    """

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._under_way: deque[Delivery] = deque()

    def send(self, batch: Sequence[Event]) -> None:
        self._check()
        send = self._producer.send
        self._under_way.extend(
            [send(topic, value, key, timestamp_ms=time_ms) for topic, key, value, time_ms in batch]
        )

    def _check(self) -> None:
        """Forget the records that are written; raise what kept one from being written."""
        under_way = self._under_way
        while under_way and under_way[0].done():
            error = under_way.popleft().exception()
            if error is not None:
                raise error

    def flush(self) -> None:
        self._producer.flush()
        self._check()


class LineDestination:
    """Writes one JSON object per line, as ``tidelog produce --json`` reads them.

    A directory gets ``<topic>.jsonl`` files; a stream gets all events, each with its topic.
    """

    def __init__(self, files: Mapping[str, IO[bytes]] | IO[bytes]) -> None:
        self._files = files
        self._encode = msgspec.json.Encoder().encode

    def send(self, batch: Sequence[Event]) -> None:
        encode, files = self._encode, self._files
        if isinstance(files, Mapping):
            for topic, key, value, timestamp_ms in batch:
                line = {"key": key.decode(), "timestamp": timestamp_ms, "value": value.decode()}
                files[topic].write(encode(line) + b"\n")
            return
        files.write(
            b"".join(
                encode(
                    {
                        "topic": topic,
                        "key": key.decode(),
                        "timestamp": timestamp_ms,
                        "value": value.decode(),
                    }
                )
                + b"\n"
                for topic, key, value, timestamp_ms in batch
            )
        )

    def flush(self) -> None:
        files = self._files.values() if isinstance(self._files, Mapping) else (self._files,)
        for file in files:
            file.flush()


@contextlib.contextmanager
def to_broker(
    options: Mapping[str, object],
    *,
    partitions: int = PARTITIONS,
    topic_configs: Mapping[str, str] | None = None,
) -> Iterator[BrokerDestination]:
    """A broker, with the topics of all events on it; those that exist are left as they are."""
    from tidelog.client import Admin, NewTopic
    from tidelog.client.options import ADMIN
    from tidelog.spark.dead_letters.letter_reader import options_for

    with Admin({"client.id": CLIENT_ID, **options_for(ADMIN, options)}) as admin:
        wanted = [
            NewTopic(kind.topic, partitions, configs=dict(topic_configs or {})) for kind in events.KINDS
        ]
        for result in admin.create_topics(wanted):
            if result.error is not None and result.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise result.error
    with to_topics(options) as destination:
        yield destination


@contextlib.contextmanager
def to_topics(options: Mapping[str, object]) -> Iterator[BrokerDestination]:
    """A broker that has the topics of all events."""
    from tidelog.client import Producer
    from tidelog.client.options import PRODUCER
    from tidelog.spark.dead_letters.letter_reader import options_for

    own = {"client.id": CLIENT_ID, "linger.ms": 5, "batch.size": 65_536, "compression.type": "lz4"}
    with Producer({**own, **options_for(PRODUCER, options)}) as producer:
        yield BrokerDestination(producer)


@contextlib.contextmanager
def to_directory(directory: Path) -> Iterator[LineDestination]:
    """``<topic>.jsonl`` files in a directory, which is made; files of an earlier run are replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as files:
        yield LineDestination(
            {
                kind.topic: files.enter_context((directory / f"{kind.topic}.jsonl").open("wb"))
                for kind in events.KINDS
            }
        )


@contextlib.contextmanager
def to_stdout() -> Iterator[LineDestination]:
    """All events on stdout."""
    yield LineDestination(sys.stdout.buffer)


def deliver(
    traffic: Traffic,
    destination: Destination,
    *,
    paced: bool,
    seconds: float | None = None,
    count: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
    on_batch: Callable[[Sequence[Event]], None] = lambda batch: None,
) -> int:
    """Send events until ``seconds`` or ``count`` are reached or ``stopped`` says so; returns how many.

    Paced, one second of real time brings ``speed`` seconds of event time; otherwise it goes as fast as it
    can, and ``seconds`` bounds what would have been real time.
    """
    settings = traffic.settings
    end_ms = None if seconds is None else traffic.begin_ms + round(seconds * settings.speed * 1000)
    step_ms = max(100, round(_RECORDS_PER_STEP / settings.density * 1000))
    began_s = time.monotonic()
    sent = 0
    while not stopped():
        if paced:
            target_ms = traffic.begin_ms + int((time.monotonic() - began_s) * 1000 * settings.speed)
        else:
            target_ms = traffic.time_ms + step_ms
        target_ms = target_ms if end_ms is None else min(target_ms, end_ms)
        batch = traffic.until(target_ms, (1 << 60) if count is None else count - sent)
        destination.send(batch)
        sent += len(batch)
        on_batch(batch)
        if target_ms == end_ms or sent == count:
            break
        if paced:
            time.sleep(_TICK_S)
    destination.flush()
    return sent


@contextlib.contextmanager
def stop_request() -> Iterator[Callable[[], bool]]:
    """Ctrl-C and SIGTERM ask for an end after the batch at hand; a second one does not wait."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

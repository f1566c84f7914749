"""Clients in processes of their own, which write a history of what they did and saw.

    python -m tests.chaos.cluster.workloads '{"kind": "produce", "client": "tidelog", …}'

``produce`` sends numbered values at a steady rate with an idempotent producer and ``acks=all``; ``assign``
reads partitions from their start on; ``subscribe`` reads as a member of a group and commits what it has
read. Each runs until SIGTERM (a producer also until it has sent its ``count``), finishes what is under way
and ends with code 0. ``copy`` is in ``copiers``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
from tests.chaos.cluster import locked_reader, own_repeats
from tests.chaos.cluster.history import ASSIGN, FAIL, INFO, INVOKE, OK, POLL, SEND, HistoryFile

import tidelog
from tidelog import RebalanceListener, TopicPartition
from tidelog.client.producer.record import RecordMetadata
from tidelog.errors import TidelogError

TICK_S = 0.01
POLL_S = 0.2
FINISH_S = 150.0
TIDELOG, CONFLUENT = "tidelog", "confluent"
DEBUG = os.environ.get("TIDELOG_CHAOS_DEBUG", "")
"""What librdkafka is to tell in the clients' logs, such as ``eos,msg``; see its option ``debug``."""
QUICK = {"retry.backoff.ms": 50, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500}
GROUP = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 1000}

Records = list[tuple[str, int, int, str]]


@dataclass(frozen=True)
class Work:
    """What a process is told to do."""

    kind: str
    client: str
    name: str
    bootstrap: str
    history: str
    topic: str
    partitions: int
    rate: float = 100.0
    count: int = 0
    group: str = ""
    output: str = ""
    per_transaction: int = 100
    abort_share: float = 0.0
    life: int = 0
    """How often the process was started before."""

    @property
    def process(self) -> str:
        """Its name in the history; who reads from the start and is started again is another reader."""
        return f"{self.name}.{self.life}" if self.kind == "assign" else self.name

    def connection(self) -> dict[str, object]:
        options: dict[str, object] = {"bootstrap.servers": self.bootstrap, "client.id": self.name, **QUICK}
        if self.client == CONFLUENT:
            options["log_level"] = 3
            if DEBUG:
                options |= {"debug": DEBUG, "log_level": 7}
        return options


class Stop:
    """Set by SIGTERM."""

    def __init__(self) -> None:
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True


# Producing


class TidelogSender:
    """Our own producer."""

    def __init__(self, work: Work, history: HistoryFile) -> None:
        self._history = history
        self._topic = work.topic
        self._producer = tidelog.Producer({**work.connection(), "linger.ms": 5})

    def send(self, value: str, partition: int) -> None:
        def delivered(metadata: RecordMetadata | None, error: BaseException | None) -> None:
            if metadata is not None and error is None:
                records = ((self._topic, partition, metadata.offset, value),)
                self._history.add(OK, SEND, value, records)
            else:
                self._history.add(INFO, SEND, value, remark=repr(error))

        self._producer.send(self._topic, value.encode(), partition=partition, on_delivery=delivered)

    def serve(self) -> None:
        """Its thread calls back by itself."""

    def finish(self) -> None:
        self._producer.flush(FINISH_S)
        self._producer.close(10)


class ConfluentSender:
    """librdkafka's."""

    def __init__(self, work: Work, history: HistoryFile) -> None:
        self._history = history
        self._topic = work.topic
        self._producer = confluent_kafka.Producer(
            {
                **own_repeats.TRACE,
                **work.connection(),
                "linger.ms": 5,
                "enable.idempotence": True,
                "delivery.timeout.ms": 120_000,
            }
        )

    def send(self, value: str, partition: int) -> None:
        def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
            if error is None:
                self._history.add(OK, SEND, value, (place_of(message),))
            else:
                self._history.add(INFO, SEND, value, remark=str(error))

        while True:
            try:
                self._producer.produce(
                    self._topic, value.encode(), partition=partition, on_delivery=delivered
                )
                return
            except BufferError:
                self._producer.poll(0.1)

    def serve(self) -> None:
        self._producer.poll(0)

    def finish(self) -> None:
        self._producer.flush(FINISH_S)


def produce(work: Work, history: HistoryFile, stop: Stop) -> None:
    sender = (TidelogSender if work.client == TIDELOG else ConfluentSender)(work, history)
    begun_s = time.monotonic()
    sent = 0
    while not stop.asked and (not work.count or sent < work.count):
        due = int((time.monotonic() - begun_s) * work.rate) - sent
        if work.count:
            due = min(due, work.count - sent)
        values = [(f"{work.name}:{number}", number % work.partitions) for number in range(sent, sent + due)]
        for value, partition in values:
            history.add(INVOKE, SEND, value, ((work.topic, partition, -1, value),))
        history.flush()
        for value, partition in values:
            try:
                sender.send(value, partition)
            except TidelogError as error:
                history.add(FAIL, SEND, value, remark=repr(error))
        sent += due
        sender.serve()
        time.sleep(TICK_S)
    sender.finish()
    history.flush()


# Consuming


class TidelogReader(RebalanceListener):
    """Our own consumer."""

    def __init__(self, work: Work, history: HistoryFile) -> None:
        self._history = history
        options = {**work.connection(), "isolation.level": "read_committed", "enable.auto.commit": False}
        if work.group:
            options |= {"group.id": work.group, "auto.offset.reset": "earliest", **GROUP}
            self._consumer = tidelog.Consumer(options)
            self._consumer.subscribe([work.topic], listener=self)
        else:
            self._consumer = tidelog.Consumer({**options, "auto.offset.reset": "none"})
            places = [TopicPartition(work.topic, index) for index in range(work.partitions)]
            self._consumer.assign(places)
            for place in places:
                self._consumer.seek(place, 0)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._history.add(OK, ASSIGN, "", [(*each, -1, "") for each in partitions])

    def poll(self) -> Records:
        return [
            (each.topic, each.partition, each.offset, (each.value or b"").decode())
            for each in self._consumer.poll(POLL_S)
        ]

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class ConfluentReader:
    """librdkafka's."""

    def __init__(self, work: Work, history: HistoryFile) -> None:
        self._history = history
        options: dict[str, object] = {
            **work.connection(),
            **locked_reader.TRACE,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "group.id": work.group or work.name,
            "auto.offset.reset": "earliest" if work.group else "error",
            **GROUP,
        }
        self._consumer = confluent_kafka.Consumer(options)
        if work.group:
            self._consumer.subscribe([work.topic], on_assign=self._assigned)
        else:
            self._consumer.assign(
                [confluent_kafka.TopicPartition(work.topic, index, 0) for index in range(work.partitions)]
            )

    def _assigned(self, _: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._history.add(OK, ASSIGN, "", [(each.topic, each.partition, -1, "") for each in partitions])

    def poll(self) -> Records:
        found: Records = []
        for message in self._consumer.consume(500, POLL_S):
            error = message.error()
            if error is not None:
                raise confluent_kafka.KafkaException(error)
            found.append(place_of(message))
        return found

    def commit(self) -> None:
        # Not waited for: librdkafka was seen to wait for ever, once its coordinator had died in between.
        self._consumer.commit(asynchronous=True)

    def close(self) -> None:
        self._consumer.close()


def place_of(message: confluent_kafka.Message) -> tuple[str, int, int, str]:
    offset = message.offset()
    # librdkafka does not learn the offset of a batch that a leader has taken whose answer got lost with it.
    place = (message.topic() or "", message.partition() or 0, -1 if offset is None else offset)
    return *place, (message.value() or b"").decode()


FAILURES = (TidelogError, confluent_kafka.KafkaException)


def consume(work: Work, history: HistoryFile, stop: Stop) -> None:
    reader = (TidelogReader if work.client == TIDELOG else ConfluentReader)(work, history)
    while not stop.asked:
        try:
            records = reader.poll()
        except FAILURES as error:
            history.add(FAIL, POLL, remark=repr(error))
            history.flush()
            time.sleep(POLL_S)
            continue
        if records:
            history.add(OK, POLL, "", records)
            if work.group:
                try:
                    reader.commit()
                except FAILURES as error:
                    # Somebody else reads them once more: at least once is what a group promises.
                    history.add(INFO, POLL, remark=f"not committed: {error!r}")
        history.flush()
    reader.close()


def main(text: str) -> None:
    work = Work(**json.loads(text))
    history = HistoryFile(Path(work.history) / f"{work.name}.{work.life}.jsonl", work.process)
    stop = Stop()
    try:
        if work.kind == "produce":
            produce(work, history, stop)
        elif work.kind == "copy":
            from tests.chaos.cluster.copiers import copy

            copy(work, history, stop)
        elif work.kind == "administer":
            from tests.chaos.cluster.administrators import administer

            administer(work, history, stop)
        else:
            consume(work, history, stop)
    finally:
        history.close()


if __name__ == "__main__":
    main(sys.argv[1])

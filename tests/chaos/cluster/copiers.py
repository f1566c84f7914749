"""Transactional consume-transform-produce loops, with our own clients and with librdkafka's.

Reads a topic as a member of a group, writes each value into the same partition of another one, marked with
the transaction that wrote it (``value|copier.life.number``), and commits the offsets in the same transaction.
Some transactions are aborted on purpose. A loop whose producer is lost ends with ``LOST``, and with ``STUCK``
if librdkafka does not come back; whoever started it starts it again under the same transactional id. See
``tests/rigs/exactly_once`` for the same with one broker.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Collection
from typing import Protocol

import confluent_kafka
from tests.chaos.cluster.history import COMMIT, FAIL, INFO, INVOKE, OK, TXN, HistoryFile
from tests.chaos.cluster.unasked_coordinator import STUCK, TRACE
from tests.chaos.cluster.workloads import CONFLUENT, FAILURES, GROUP, POLL_S, Records, Stop, Work, place_of

import tidelog
from tidelog import RebalanceListener, TopicPartition
from tidelog.errors import TidelogError

LOST = 3
CALL_S = 60.0
LATE_S = 1.5 * CALL_S
GATHER_S = 1.0
TRANSACTION_TIMEOUT_MS = 10_000

Positions = dict[tuple[str, int], int]


class Lost(Exception):
    """The producer is of no use any more, or nobody knows what became of a commit."""


class Aborted(Exception):
    """The transaction has failed and can be aborted."""


class Clients(Protocol):
    """A consumer and a transactional producer."""

    changed: bool
    """Whether partitions have come or gone since it was last set to False."""

    def poll(self, most: int) -> Records: ...
    def begin(self) -> None: ...
    def send(self, topic: str, partition: int, value: str) -> None: ...
    def send_offsets(self, positions: Positions) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def seek(self, positions: Positions) -> None: ...
    def close(self) -> None: ...


class TidelogClients(RebalanceListener):
    """Our own."""

    def __init__(self, work: Work) -> None:
        self.changed = False
        self._producer = tidelog.Producer(
            {
                **work.connection(),
                "transactional.id": work.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
            }
        )
        self._producer.init_transactions()
        self._consumer = tidelog.Consumer(
            {
                **work.connection(),
                "group.id": work.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **GROUP,
            }
        )
        self._consumer.subscribe([work.topic], listener=self)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.changed = True

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.changed = True

    def poll(self, most: int) -> Records:
        return [
            (each.topic, each.partition, each.offset, (each.value or b"").decode())
            for each in self._consumer.poll(POLL_S, most)
        ]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        try:
            self._producer.send(topic, value.encode(), partition=partition)
        except TidelogError as error:
            raise self._failure(error) from error

    def send_offsets(self, positions: Positions) -> None:
        offsets = {TopicPartition(*place): offset for place, offset in positions.items()}
        try:
            self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())
        except TidelogError as error:
            raise self._failure(error) from error

    def commit(self) -> None:
        try:
            self._producer.commit_transaction()
        except TidelogError as error:
            raise self._failure(error) from error

    def abort(self) -> None:
        try:
            self._producer.abort_transaction()
        except TidelogError as error:
            raise Lost(repr(error)) from error

    def _failure(self, error: TidelogError) -> Exception:
        return (Lost if self._producer.has_fatal_error else Aborted)(repr(error))

    def seek(self, positions: Positions) -> None:
        assigned = self._consumer.assignment()
        for place, offset in positions.items():
            if TopicPartition(*place) in assigned:
                self._consumer.seek(TopicPartition(*place), offset)

    def close(self) -> None:
        self._consumer.close()
        self._producer.close(10)


class ConfluentClients:
    """librdkafka's."""

    def __init__(self, work: Work) -> None:
        self.changed = False
        self._producer = confluent_kafka.Producer(
            {
                **TRACE,
                **work.connection(),
                "transactional.id": work.name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
            }
        )
        while True:
            try:
                self._producer.init_transactions(CALL_S)
                break
            except confluent_kafka.KafkaException as failed:
                if not failed.args[0].retriable():
                    raise
        self._consumer = confluent_kafka.Consumer(
            {
                **work.connection(),
                "group.id": work.group,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **GROUP,
            }
        )
        self._consumer.subscribe([work.topic], on_assign=self._note, on_revoke=self._note, on_lost=self._note)

    def _note(self, *_: object) -> None:
        self.changed = True

    def poll(self, most: int) -> Records:
        return [place_of(each) for each in self._consumer.consume(most, POLL_S) if each.error() is None]

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        while True:
            try:
                self._producer.produce(topic, value.encode(), partition=partition)
                return
            except BufferError:
                self._producer.poll(0.1)
            except confluent_kafka.KafkaException as failed:
                raise self._failure(failed) from failed

    def send_offsets(self, positions: Positions) -> None:
        offsets = [confluent_kafka.TopicPartition(*place, offset) for place, offset in positions.items()]
        watchdog = threading.Timer(LATE_S, _end_as_stuck)
        watchdog.daemon = True
        watchdog.start()
        try:
            self._patiently(
                lambda: self._producer.send_offsets_to_transaction(
                    offsets, self._consumer.consumer_group_metadata(), CALL_S
                )
            )
        finally:
            watchdog.cancel()

    def commit(self) -> None:
        self._patiently(lambda: self._producer.commit_transaction(CALL_S))

    def abort(self) -> None:
        try:
            self._patiently(lambda: self._producer.abort_transaction(CALL_S))
        except Aborted as error:
            raise Lost(str(error)) from error

    def _patiently(self, call: object) -> None:
        while True:
            try:
                call()  # type: ignore[operator]
                return
            except confluent_kafka.KafkaException as failed:
                if not failed.args[0].retriable() or failed.args[0].txn_requires_abort():
                    raise self._failure(failed) from failed

    def _failure(self, failed: confluent_kafka.KafkaException) -> Exception:
        error = failed.args[0]
        return (Aborted if error.txn_requires_abort() else Lost)(str(error))

    def seek(self, positions: Positions) -> None:
        assigned = {(each.topic, each.partition) for each in self._consumer.assignment()}
        for place, offset in positions.items():
            if place in assigned:
                self._consumer.seek(confluent_kafka.TopicPartition(*place, offset))

    def close(self) -> None:
        self._consumer.close()


def _end_as_stuck() -> None:
    print(f"send_offsets_to_transaction did not come back within {LATE_S:.0f} s", file=sys.stderr, flush=True)
    os._exit(STUCK)


def copy(work: Work, history: HistoryFile, stop: Stop) -> None:
    chance = random.Random(f"{work.name} {work.life}")
    number = 0
    try:
        clients: Clients = (ConfluentClients if work.client == CONFLUENT else TidelogClients)(work)
        while not stop.asked:
            clients.changed = False
            records = _gather(clients, work.per_transaction, stop)
            if clients.changed or not records:
                # What was read before partitions changed hands is read again by whoever has them now.
                if records:
                    clients.seek(_first(records))
                continue
            number += 1
            name = f"{work.name}.{work.life}.{number}"
            on_purpose = chance.random() < work.abort_share
            if not _transact(clients, work, history, name, records, abort=on_purpose):
                clients.seek(_first(records))
    except (Lost, *FAILURES) as error:
        print(f"{work.name}: {error!r}", file=sys.stderr, flush=True)
        history.close()
        sys.exit(LOST)
    clients.close()


def _gather(clients: Clients, wanted: int, stop: Stop) -> Records:
    records: Records = []
    deadline_s = time.monotonic() + GATHER_S
    while len(records) < wanted and time.monotonic() < deadline_s and not stop.asked and not clients.changed:
        records += clients.poll(wanted - len(records))
    return records


def _transact(
    clients: Clients, work: Work, history: HistoryFile, name: str, records: Records, *, abort: bool
) -> bool:
    """One transaction; whether it was committed."""
    written = [(work.output, partition, -1, f"{value}|{name}") for _, partition, _, value in records]
    history.add(INVOKE, TXN, name, written)
    history.flush()
    asked = False
    try:
        try:
            clients.begin()
            for topic, partition, _, value in written:
                clients.send(topic, partition, value)
            clients.send_offsets(_next(records))
            if abort:
                raise Aborted("on purpose")
            history.add(INVOKE, COMMIT, name)
            history.flush()
            asked = True
            clients.commit()
            history.add(OK, TXN, name, written)
            return True
        except Aborted as error:
            clients.abort()
            history.add(FAIL, TXN, name, remark=str(error))
            return False
    except Lost as error:
        history.add(INFO if asked else FAIL, TXN, name, remark=f"lost: {error}")
        raise
    finally:
        history.flush()


def _next(records: Records) -> Positions:
    return {(topic, partition): offset + 1 for topic, partition, offset, _ in records}


def _first(records: Records) -> Positions:
    return {(topic, partition): offset for topic, partition, offset, _ in reversed(records)}

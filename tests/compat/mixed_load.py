"""Clients that work while a cluster changes under them, and what they must find in the end.

Three threads: an idempotent producer with acks=all that numbers its records, a member of a group that reads
them and commits, and a transactional producer of which every third transaction is aborted. No client may see
an error; `finish` stops them and compares what was acknowledged with what is there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.compat import workload

NUMBERS, TRANSFERS = "numbers", "transfers"
GROUP = "readers"
PARTITIONS = 3
PAUSE_S = 0.01


class Load:
    """The three clients; made when the cluster has at least as many brokers as replicas are wanted."""

    def __init__(self, bootstrap: str, replicas: int) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        topics = [NewTopic(name, PARTITIONS, replicas) for name in (NUMBERS, TRANSFERS)]
        for made in admin.create_topics(topics).values():
            made.result(workload.TIMEOUT_S)
        self._bootstrap = bootstrap
        self._stop = threading.Event()
        self._acknowledged: set[int] = set()
        self._read: list[int] = []
        self._committed: list[int] = []
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work,), daemon=True)
            for work in (self._produce, self._consume, self._transact)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._errors.append(f"{work.__name__}: {error}")

    def wait_for_progress(self) -> None:
        """Wait until every client has done something since now, and every partition knows the producer.

        A leader that has never seen a producer takes any first sequence number of it. If leadership moves
        while the first request of a partition is under way, Apache Kafka takes the second one first, and
        librdkafka counts the first as delivered: record 2 was lost so between two Apache brokers.
        """
        before = self._progress()
        deadline = time.monotonic() + workload.TIMEOUT_S
        while not (
            all(now > then for now, then in zip(self._progress(), before, strict=True))
            and len({number % PARTITIONS for number in tuple(self._acknowledged)}) == PARTITIONS
        ):
            assert not self._errors, self._errors
            assert time.monotonic() < deadline, f"from {before} to {self._progress()}"
            time.sleep(0.05)

    def _progress(self) -> tuple[int, int, int]:
        return len(self._acknowledged), len(self._read), len(self._committed)

    def _produce(self) -> None:
        producer = workload.open_producer(
            self._bootstrap, **{"enable.idempotence": True, "compression.codec": "zstd"}
        )
        number = 0
        while not self._stop.is_set():
            producer.produce(
                NUMBERS, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._delivered
            )
            number += 1
            producer.poll(PAUSE_S)
        workload.flush_all(producer)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._errors.append(f"record {message.value()!r}: {error}")
        else:
            self._acknowledged.add(int(message.value() or b""))

    def _consume(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "auto.commit.interval.ms": 200,
                # While one broker is being replaced and the other leads, both may be away for a moment. By
                # default librdkafka (2.16) then begins anew from its bootstrap servers and lets go of the
                # brokers it knows; if it waits for OffsetForLeaderEpoch of one of them, two of its threads
                # hold the locks that the other wants, and it never reads again (its issue 5476). A trace
                # showed that: its main thread was silent from that request's failure on.
                "metadata.recovery.strategy": "none",
                # Shown with a failure: why it reads no more is nowhere else.
                "debug": "broker,cgrp,metadata",
            }
        )
        consumer.subscribe([NUMBERS])
        producer_is_done_at = float("inf")
        while time.monotonic() < producer_is_done_at + 30:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                self._read.append(int(message.value() or b""))
            if self._stop.is_set() and not self._threads[0].is_alive():
                producer_is_done_at = min(producer_is_done_at, time.monotonic())
                if self._acknowledged <= set(self._read):
                    break
        consumer.close()

    def _transact(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": "transfers",
                "transaction.timeout.ms": 60_000,
            }
        )
        producer.init_transactions(workload.TIMEOUT_S)
        number = 0
        while not self._stop.is_set():
            producer.begin_transaction()
            for partition in range(PARTITIONS):
                producer.produce(TRANSFERS, b"%d" % number, partition=partition)
            if number % 3 == 2:
                producer.flush(workload.TIMEOUT_S)
                producer.abort_transaction(workload.TIMEOUT_S)
            else:
                producer.commit_transaction(workload.TIMEOUT_S)
                self._committed.append(number)
            number += 1
            self._stop.wait(PAUSE_S)

    def finish(self, bootstrap: str) -> int:
        """Stop the clients and check that nothing is lost, doubled or out of order; gives how much there
        was."""
        self._stop.set()
        for thread in self._threads:
            thread.join(2 * workload.TIMEOUT_S)
            assert not thread.is_alive()
        assert self._errors == []
        places = [(name, index) for name in (NUMBERS, TRANSFERS) for index in range(PARTITIONS)]
        found = workload.read(bootstrap, places)
        for index in range(PARTITIONS):
            numbers = [int(each.value or b"") for each in found[NUMBERS, index]]
            acknowledged = sorted(each for each in self._acknowledged if each % PARTITIONS == index)
            assert numbers == acknowledged, _difference(found[NUMBERS, index], numbers, acknowledged)
            transfers = [int(each.value or b"") for each in found[TRANSFERS, index]]
            assert transfers == self._committed
        assert set(self._read) == self._acknowledged
        return len(self._acknowledged)


def _difference(records: list[workload.Seen], found: list[int], wanted: list[int]) -> str:
    """What is lost, there twice or not acknowledged, and where in the log the numbers do not rise."""
    places: dict[int, list[int]] = {}
    for record, number in zip(records, found, strict=True):
        places.setdefault(number, []).append(record.offset)
    falls = [index for index in range(1, len(found)) if found[index] <= found[index - 1]]
    return (
        f"lost: {sorted(set(wanted) - set(found))}; never acknowledged: {sorted(set(found) - set(wanted))}; "
        f"twice, at offsets: { ({each: at for each, at in places.items() if len(at) > 1}) }; "
        f"falling at offsets: {[(records[index].offset, found[index - 1 : index + 2]) for index in falls]}"
    )

"""Topics for groups to read, and records in them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from tests.rigs.delivered import place_of
from tests.rigs.group_members.member import Place

TIMEOUT_S = 30.0


def create(bootstrap: str, topic: str, partitions: int) -> list[Place]:
    """A new topic that is ready; gives its partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(TIMEOUT_S)
    places = [(topic, index) for index in range(partitions)]
    deadline = time.monotonic() + TIMEOUT_S
    while len(admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) < partitions:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return places


def grow(bootstrap: str, topic: str, total: int) -> list[Place]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)
    return [(topic, index) for index in range(total)]


def open_producer(bootstrap: str) -> Producer:
    # One request at a time: a new topic's leader may refuse the first batch and then take its second,
    # for Kafka takes any sequence number from a producer that it does not know. librdkafka counts the first
    # as acknowledged by the second ("implicitly acked") and never sends it again: its records are lost.
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "max.in.flight": 1,
            "linger.ms": 5,
            "message.timeout.ms": 60_000,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
        }
    )


def fill(bootstrap: str, places: list[Place], count: int) -> dict[Place, int]:
    """Write `count` records to each partition of a new topic; gives where the partitions end."""
    producer = open_producer(bootstrap)
    for number in range(count):
        for topic, partition in places:
            producer.produce(topic, b"%d" % number, partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    return dict.fromkeys(places, count)


def log_ends(bootstrap: str, places: Iterable[Place]) -> dict[Place, int]:
    """Where the partitions end by the broker's own word."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody", "enable.auto.commit": False})
    try:
        return {
            place: reader.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT_S)[1]
            for place in places
        }
    finally:
        reader.close()


def committed(bootstrap: str, group: str, places: Iterable[Place]) -> dict[Place, int]:
    """What the group has committed; below 0 where there is nothing."""
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        found = asking.committed([TopicPartition(*place) for place in places], timeout=TIMEOUT_S)
        return {(each.topic, each.partition): each.offset for each in found}
    finally:
        asking.close()


class Stream:
    """Records written all the time, a few to each partition of a new topic in turn, until the end.

    At the end the log must hold exactly what was acknowledged: else readers would be blamed for a record that
    its producer, or the broker, has lost.
    """

    def __init__(self, bootstrap: str, places: list[Place], pause_s: float = 0.002) -> None:
        self.ends: dict[Place, int] = dict.fromkeys(places, 0)
        self._acknowledged: dict[Place, list[int | None]] = {place: [] for place in places}
        self._bootstrap = bootstrap
        self._places = places
        self._pause_s = pause_s
        self._producer = open_producer(bootstrap)
        self._failures: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        left = self._producer.flush(TIMEOUT_S)
        if kind is None:
            assert left == 0
            if self._failures:
                raise KafkaException(self._failures[0])
            self._check_log()

    def _check_log(self) -> None:
        for place, end in log_ends(self._bootstrap, self._places).items():
            acknowledged = self._acknowledged[place]
            assert end == self.ends[place], (
                f"{place} ends at {end} but {self.ends[place]} records were acknowledged, "
                f"the last ones at {acknowledged[-5:]}, those without an offset or out of order: "
                f"{[(at, offset) for at, offset in enumerate(acknowledged) if at != offset][:20]}"
            )

    def _run(self) -> None:
        number = 0
        while not self._stop.wait(self._pause_s):
            topic, partition = self._places[number % len(self._places)]
            self._producer.produce(topic, b"%d" % number, partition=partition, on_delivery=self._note)
            self._producer.poll(0)
            number += 1

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failures.append(error)
        else:
            place = place_of(message)
            self.ends[place] += 1
            self._acknowledged[place].append(message.offset())

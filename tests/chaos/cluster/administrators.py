"""Somebody who administers a cluster while it is harmed, and what must be true of it afterwards.

The one process makes, grows and deletes topics of its own (a few names, again and again), moves the
partitions of a topic that others write to between brokers, and elects leaders. When all faults are over,
what was acknowledged must be so on every broker, everything that was begun must end, and every broker must
have the replicas that were placed there. One that was away when a replica was moved off it may keep the log
that nobody told it to delete, as with Apache Kafka: that is said, and is no failure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.chaos.cluster.brokers import ChaosCluster, wait_for
from tests.chaos.cluster.history import CHANGE, CREATE, DELETE, INFO, INVOKE, OK, Event, HistoryFile
from tests.chaos.cluster.workloads import Stop, Work
from tests.rigs.raw_client import RawClient

from tidelog import Admin, NewTopic, TopicPartition
from tidelog.errors import TidelogError
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

NAMES = ("north", "east", "south")
REPLICAS = 3
UNKNOWN = -1
SETTLE_S = 90.0
_METADATA_VERSION = 12


class Administrator:
    """Does one thing after the other, and writes down what came of it."""

    def __init__(self, work: Work, admin: Admin, history: HistoryFile, chance: random.Random) -> None:
        self._work = work
        self._admin = admin
        self._history = history
        self._chance = chance
        self._partitions = dict.fromkeys(NAMES, 0)
        """As many as each topic has; 0 for one that is not there, ``UNKNOWN`` for one that may be."""

    def step(self) -> None:
        name = self._chance.choice(NAMES)
        move = self._chance.random()
        if move < 0.3:
            self._do(CHANGE, self._work.topic, self._move)
        elif move < 0.4:
            self._do(CHANGE, self._work.topic, self._elect)
        elif not self._partitions[name]:
            count = self._chance.randint(1, 3)
            done = self._do(CREATE, name, lambda: self._create(name, count))
            self._partitions[name] = count if done else UNKNOWN
        elif move < 0.7 and self._partitions[name] != UNKNOWN:
            count = self._partitions[name] + 1
            done = self._do(CHANGE, name, lambda: self._grow(name, count))
            self._partitions[name] = count if done else UNKNOWN
        else:
            self._do(DELETE, name, lambda: self._delete(name))
            self._partitions[name] = 0

    def _do(self, operation: str, name: str, action: Callable[[], None]) -> bool:
        self._history.add(INVOKE, operation, name)
        self._history.flush()
        try:
            action()
        except TidelogError as error:
            # Whatever it says: an earlier attempt, whose answer was lost, may have done it.
            self._history.add(INFO, operation, name, remark=repr(error))
            return False
        else:
            self._history.add(OK, operation, name)
            return True
        finally:
            self._history.flush()

    def _create(self, name: str, count: int) -> None:
        for result in self._admin.create_topics([NewTopic(name, count, REPLICAS)]):
            result.raise_for_error()

    def _grow(self, name: str, count: int) -> None:
        for result in self._admin.create_partitions({name: count}):
            result.raise_for_error()

    def _delete(self, name: str) -> None:
        for result in self._admin.delete_topics([name]):
            result.raise_for_error()

    def _elect(self) -> None:
        self._admin.elect_leaders()

    def _move(self) -> None:
        brokers = sorted(node.id for node in self._admin.describe_cluster().nodes)
        if len(brokers) < REPLICAS:
            return
        targets = {
            TopicPartition(self._work.topic, index): self._chance.sample(brokers, REPLICAS)
            for index in range(self._work.partitions)
            if self._chance.random() < 0.5
        }
        for result in self._admin.alter_partition_reassignments(targets) if targets else ():
            result.raise_for_error()


def administer(work: Work, history: HistoryFile, stop: Stop) -> None:
    chance = random.Random(f"{work.name} {work.life}")
    with Admin(
        {**work.connection(), "default.api.timeout.ms": 15_000, "request.timeout.ms": 10_000}
    ) as admin:
        administrator = Administrator(work, admin, history, chance)
        while not stop.asked:
            administrator.step()


# Afterwards


def expected_topics(events: Iterable[Event]) -> dict[str, bool]:
    """Which of the topics must be there, and which must not; those that nobody knows of are left out."""
    found: dict[str, bool] = {}
    for event in events:
        if event.operation in (CREATE, DELETE):
            if event.kind == OK:
                found[event.name] = event.operation == CREATE
            elif found.get(event.name) != (event.operation == CREATE):
                found.pop(event.name, None)
    return found


def settle(cluster: ChaosCluster) -> None:
    """Wait until nothing is under way any more and all brokers know the same."""
    wait_for(lambda: f"an end of: {cluster.unfinished()}", lambda: not cluster.unfinished(), SETTLE_S)
    cluster.wait_in_sync()

    def views() -> list[object]:
        return [metadata_of(cluster.client_port(each)) for each in cluster.brokers]

    def agreed() -> bool:
        first, *others = views()
        return all(each == first for each in others)

    wait_for(lambda: f"brokers that know the same: {views()}", agreed, SETTLE_S)


def wrong_topics(cluster: ChaosCluster, events: Iterable[Event]) -> list[str]:
    """Topics that were acknowledged and are not there, or were deleted and are."""
    known = metadata_of(cluster.client_port(1))
    return [
        f"{name} must {'' if wanted else 'not '}be there, and is {'' if name in known else 'not '}"
        for name, wanted in expected_topics(events).items()
        if wanted != (name in known)
    ]


def wrong_replicas(cluster: ChaosCluster, log_dirs: dict[int, Path]) -> tuple[list[str], list[str]]:
    """Replicas that are not where they were placed, and those that are where nobody placed them."""
    placed = {
        (broker, f"{topic}-{partition}")
        for topic in {topic for topic, _ in cluster.partitions()}
        for partition, replicas in cluster.assignment(topic).items()
        for broker in replicas
    }
    held = {
        (broker, path.name)
        for broker, log_dir in log_dirs.items()
        for path in log_dir.iterdir()
        if path.is_dir() and not path.name.endswith(("-delete", "-stray"))
    }
    missing, stray = placed - held, held - placed
    return [_replica(*each) for each in sorted(missing)], [_replica(*each) for each in sorted(stray)]


def _replica(broker: int, name: str) -> str:
    return f"{name} on broker {broker}"


def metadata_of(port: int) -> dict[str, object]:
    """What one broker says of every topic: its id, and the leader, epoch, replicas and in-sync replicas of
    its partitions."""
    with RawClient("127.0.0.1", port) as client:
        answer = client.ask(_METADATA_VERSION, MetadataRequest(topics=None), MetadataResponse)
    return {
        topic.name or "": (
            topic.topic_id,
            [
                (
                    each.partition_index,
                    each.leader_id,
                    each.leader_epoch,
                    each.replica_nodes,
                    sorted(each.isr_nodes),
                )
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ],
        )
        for topic in answer.topics
    }

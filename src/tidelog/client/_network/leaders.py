"""Requests about partitions: each goes to its leader, and to the new one where that has moved or is gone.

Called by the modules whose requests name partitions (offsets, producers, transaction markers). Only
partitions whose leader has moved or not answered are asked for again; each partition ends with its own result
or error. Where no leader has answered at all, what kept them from it is raised.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Protocol, TypeVar

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Deadline
from tidelog.client._network.unanswered import Unanswered
from tidelog.client.errors import NO_ANSWER, NoLeaderError, is_retriable
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition


class PartitionOutcome(Protocol):
    """What a request says about one partition."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def error(self) -> KafkaError | None: ...


ValueT = TypeVar("ValueT")
ResultT = TypeVar("ResultT", bound=PartitionOutcome)
Ask = Callable[[Node, dict[TopicPartition, ValueT]], Awaitable[Iterable[ResultT]]]
Refuse = Callable[[TopicPartition, KafkaError], ResultT]


async def ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, ValueT],
    ask: Ask[ValueT, ResultT],
    refuse: Refuse[ResultT],
    deadline: Deadline,
) -> dict[TopicPartition, ResultT]:
    """The answers of the partitions' leaders; ``refuse`` makes the result of one that cannot be asked.

    ``ask`` sends once, with :meth:`Cluster.request_node_once`: what it raises leads to a new look for the
    leader.
    """
    results: dict[TopicPartition, ResultT] = {}
    unanswered: Unanswered[TopicPartition] = Unanswered()
    todo = dict(wanted)
    backoff = cluster.backoff()
    while todo:
        try:
            await cluster.refresh({partition.topic for partition in todo}, deadline=deadline)
        except NO_ANSWER:
            if not results:
                raise
            break
        by_leader: dict[Node, dict[TopicPartition, ValueT]] = defaultdict(dict)
        for partition, value in todo.items():
            try:
                by_leader[cluster.leader_of(partition)[0]][partition] = value
            except KafkaError as error:
                results[partition] = refuse(partition, error)
            except NoLeaderError as error:
                results[partition] = refuse(partition, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error)))
        asked = (unanswered.answer(partial(ask, node, part), part) for node, part in by_leader.items())
        for answers in await asyncio.gather(*asked):
            results.update((answer.partition, answer) for answer in answers or ())
        wait = backoff.next_ms() / 1000
        if wait >= deadline.remaining or backoff.is_exhausted:
            break
        todo = {p: value for p, value in todo.items() if _is_worth_asking_again(cluster, p, results.get(p))}
        if todo:
            await asyncio.sleep(wait)
    return unanswered.filled_in(results, wanted, refuse, lambda each: f"the leader of {each}")


async def split_by_leader(
    cluster: Cluster, partitions: Collection[TopicPartition]
) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError]]:
    """The partitions that can be asked now, and why the others cannot; does not wait for leaders."""
    await cluster.refresh({partition.topic for partition in partitions})
    led: list[TopicPartition] = []
    problems: dict[TopicPartition, KafkaError] = {}
    for partition in partitions:
        try:
            cluster.leader_of(partition)
            led.append(partition)
        except KafkaError as error:
            problems[partition] = error
        except NoLeaderError as error:
            problems[partition] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, str(error))
    return led, problems


def by_topic(partitions: Mapping[TopicPartition, ValueT]) -> dict[str, dict[int, ValueT]]:
    """Partitions as requests group them."""
    topics: dict[str, dict[int, ValueT]] = defaultdict(dict)
    for partition, value in partitions.items():
        topics[partition.topic][partition.partition] = value
    return topics


def _is_worth_asking_again(
    cluster: Cluster, partition: TopicPartition, result: PartitionOutcome | None
) -> bool:
    if result is None:
        return True
    topic = cluster.metadata.topics.get(partition.topic)
    exists = topic is not None and partition.partition in topic.partitions
    return exists and result.error is not None and is_retriable(result.error)

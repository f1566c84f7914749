"""What the exactly-once sink asks coordinators: records of epochs, and the end of a prepared transaction.

Coroutines over a client's ``Cluster``; each goes on through moved and loading coordinators and brokers that
restart, until its deadline. Nothing here is guessed: an answer that does not come raises. Called through
``Producer.ask_cluster``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, ask_coordinators
from tidelog.client._network.retry import Deadline, retrying
from tidelog.client.admin._groups import list_groups
from tidelog.client.admin._topics import create_topics
from tidelog.client.errors import NO_ANSWER, error_from
from tidelog.client.metadata import Node
from tidelog.client.producer._transaction_calls import PreparedTransaction
from tidelog.client.resources import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.spark.report.epoch_record import (
    EPOCH_PARTITION,
    EPOCH_TOPIC,
    EpochRecord,
    task_number,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

_TOPIC_NAMES_UNTIL = 9
_MANY_GROUPS_SINCE = 8
_STABLE_SINCE = 7
_VERSION_1_END_TXN = 4


@dataclass(frozen=True, slots=True)
class _Found:
    record: EpochRecord | None = None
    error: KafkaError | None = None


@dataclass(frozen=True, slots=True)
class _Ended:
    error: KafkaError | None = None


async def read_record(cluster: Cluster, name: str, deadline: Deadline, *, stable: bool) -> EpochRecord | None:
    """The last committed write of the task called ``name``.

    With ``stable`` a transaction that is about to change it is waited for.
    """

    def build(version: int) -> OffsetFetchRequest:
        if version < _STABLE_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "exactly-once needs brokers of Kafka 2.5 or later: set deliveryGuarantee=at-least-once",
            )
        indexes = [EPOCH_PARTITION.partition]
        if version < _MANY_GROUPS_SINCE:
            old = OffsetFetchRequestTopic(name=EPOCH_TOPIC, partition_indexes=indexes)
            return OffsetFetchRequest(group_id=name, topics=[old], require_stable=stable)
        topic = OffsetFetchRequestTopics(name=EPOCH_TOPIC, partition_indexes=indexes)
        group = OffsetFetchRequestGroup(group_id=name, topics=[topic])
        return OffsetFetchRequest(groups=[group], require_stable=stable)

    async def ask(node: Node, wanted: list[str]) -> dict[str, _Found]:
        response = await cluster.request_node_once(
            node, build, OffsetFetchResponse, deadline, max_version=_TOPIC_NAMES_UNTIL
        )
        return {name: _found(response, name)}

    async def attempt() -> EpochRecord | None:
        found = (
            await ask_coordinators(
                cluster, CoordinatorType.GROUP, [name], ask, lambda _, error: _Found(error=error), deadline
            )
        )[name]
        if found.error is not None:
            raise found.error
        return found.record

    return await retrying(attempt, deadline, backoff=cluster.backoff())


def _found(response: OffsetFetchResponse, name: str) -> _Found:
    group = next(iter(response.groups or ()), None)
    code = response.error_code if group is None else group.error_code
    error = error_from(code, None, f"group {name!r}")
    if error is not None:
        return _Found(error=error)
    for topic in response.topics if group is None else group.topics:
        for each in topic.partitions:
            error = error_from(each.error_code, None, f"the epoch of {name!r}")
            if error is not None or each.committed_offset < 0:
                return _Found(error=error)
            return _Found(_read(name, each.committed_offset, each.metadata or ""))
    return _Found()


def _read(name: str, version: int, metadata: str) -> EpochRecord:
    try:
        return EpochRecord.read(version, metadata)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the offset of group {name!r} is not what a Spark sink wrote ({error}): leave these groups "
            "alone, or start the query with a new checkpoint",
        ) from None


async def known_tasks(cluster: Cluster, app_id: str) -> list[int]:
    """The tasks of an application that any broker has a record of."""
    listed = await list_groups(cluster)
    for error in listed.errors:
        # A task that is overlooked could have written this epoch.
        raise error
    numbers = (task_number(app_id, group.group_id) for group in listed.groups)
    return sorted(number for number in numbers if number is not None)


async def create_epoch_topic(cluster: Cluster) -> None:
    """Have the topic for whose partition epochs are recorded."""
    for result in await create_topics(cluster, [NewTopic(EPOCH_TOPIC, 1)], validate_only=False):
        if result.error is not None and result.error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
            raise KafkaError(
                result.error.code,
                f"topic {EPOCH_TOPIC}, which exactly-once needs, could not be created: {result.error}; "
                "create it with one partition",
            )


async def end_transactions(
    cluster: Cluster, prepared: Collection[PreparedTransaction], deadline: Deadline, *, commit: bool
) -> dict[str, KafkaError | None]:
    """Commit or abort prepared transactions: by transactional id what went wrong, or None."""
    by_id = {each.transactional_id: each for each in prepared}

    async def end(node: Node, transactional_id: str) -> _Ended:
        each = by_id[transactional_id]
        response = await cluster.request_node_once(
            node,
            EndTxnRequest(
                transactional_id=transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                committed=commit,
            ),
            EndTxnResponse,
            deadline,
            max_version=None if each.is_version_2 else _VERSION_1_END_TXN,
        )
        return _Ended(error_from(response.error_code, None, f"the transaction of {transactional_id!r}"))

    async def ask(node: Node, wanted: list[str]) -> dict[str, _Ended]:
        ended: dict[str, _Ended] = {}
        try:
            for name in wanted:
                ended[name] = await end(node, name)
        except NO_ANSWER:
            if not ended:
                raise
        return ended  # what is missing is asked for again

    ended = await ask_coordinators(
        cluster, CoordinatorType.TRANSACTION, list(by_id), ask, lambda _, error: _Ended(error), deadline
    )
    return {name: each.error for name, each in ended.items()}

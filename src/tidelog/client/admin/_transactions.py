"""Listing, describing and ending transactions.

Transactional ids are listed by every broker for itself and described by their coordinators. There are two
ways to end one: ``fence_producer`` asks the coordinator (a new epoch aborts what is open, KIP-360), and
``abort_transaction`` writes a marker into one partition, for hanging transactions that no coordinator knows
any more (KIP-664). Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, ask_coordinators
from tidelog.client._network.leaders import ask_leaders
from tidelog.client._network.retry import Deadline, retrying
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.client.admin.transaction_resources import (
    AbortMarker,
    ListedTransactions,
    TransactionDescription,
    TransactionListing,
    TransactionState,
    transaction_state,
)
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition
from tidelog.wire.messages import describe_transactions as describe
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_DURATION_SINCE = 1
_PATTERN_SINCE = 2


async def list_transactions(
    cluster: Cluster,
    *,
    states: Collection[TransactionState] = (),
    producer_ids: Collection[int] = (),
    running_longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> ListedTransactions:
    """See :meth:`AsyncAdmin.list_transactions`."""
    deadline = cluster.deadline()

    def build(version: int) -> ListTransactionsRequest:
        if running_longer_than_ms is not None and version < _DURATION_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "a broker is older than Kafka 3.8 and cannot list transactions by how long they are open",
            )
        return ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=-1 if running_longer_than_ms is None else running_longer_than_ms,
            transactional_id_pattern=pattern if version >= _PATTERN_SINCE else None,
        )

    nodes = (await cluster.refresh([], deadline=deadline)).nodes.values()
    asked = (_list_on(cluster, node, build, deadline) for node in nodes)
    found: list[TransactionListing] = []
    errors: list[TidelogError] = []
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, TidelogError):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            found += answer
    # Brokers before Kafka 4.1 know no patterns; what the others have filtered passes once more.
    matching = [each for each in found if pattern is None or re.fullmatch(pattern, each.transactional_id)]
    return ListedTransactions(tuple(sorted(matching, key=lambda each: each.transactional_id)), tuple(errors))


async def _list_on(
    cluster: Cluster, node: Node, build: Callable[[int], ListTransactionsRequest], deadline: Deadline
) -> list[TransactionListing]:
    async def attempt() -> ListTransactionsResponse:
        response = await cluster.request_node(node.id, build, ListTransactionsResponse, deadline)
        error = error_from(response.error_code, None, f"listing the transactions of broker {node.id}")
        if error is not None:
            raise error
        return response

    response = await retrying(attempt, deadline, backoff=cluster.backoff())
    return [
        TransactionListing(
            each.transactional_id, each.producer_id, transaction_state(each.transaction_state), node
        )
        for each in response.transaction_states
    ]


async def describe_transactions(
    cluster: Cluster, transactional_ids: Collection[str]
) -> dict[str, TransactionDescription]:
    """See :meth:`AsyncAdmin.describe_transactions`."""
    deadline = cluster.deadline()

    async def ask(node: Node, wanted: list[str]) -> dict[str, TransactionDescription]:
        request = describe.DescribeTransactionsRequest(transactional_ids=wanted)
        response_type = describe.DescribeTransactionsResponse
        response = await cluster.request_node_once(node, request, response_type, deadline)
        return {each.transactional_id: _description(each, node) for each in response.transaction_states}

    def refuse(transactional_id: str, error: KafkaError) -> TransactionDescription:
        return TransactionDescription(transactional_id, error=error)

    kind = CoordinatorType.TRANSACTION
    return await ask_coordinators(cluster, kind, transactional_ids, ask, refuse, deadline)


def _description(state: describe.TransactionState, node: Node) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        transaction_state(state.transaction_state),
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        tuple(
            sorted(TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions)
        ),
        node,
        error_from(state.error_code, None, f"transactional id {state.transactional_id!r}"),
    )


async def fence_producer(cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
    """See :meth:`AsyncAdmin.fence_producer`."""
    deadline = cluster.deadline()
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

    def outcome(name: str, error: KafkaError | None) -> TransactionDescription:
        return TransactionDescription(name, error=error)

    async def ask(node: Node, wanted: list[str]) -> dict[str, TransactionDescription]:
        response = await cluster.request_node_once(node, request, InitProducerIdResponse, deadline)
        error = error_from(response.error_code, None, f"transactional id {transactional_id!r}")
        return {transactional_id: outcome(transactional_id, error)}

    kind = CoordinatorType.TRANSACTION
    found = await ask_coordinators(cluster, kind, [transactional_id], ask, outcome, deadline)
    found[transactional_id].raise_for_error()


async def abort_transaction(cluster: Cluster, marker: AbortMarker) -> None:
    """See :meth:`AsyncAdmin.abort_transaction`."""
    deadline = cluster.deadline()
    topic, index = marker.partition
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[index])],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ]
    )

    async def ask(node: Node, wanted: dict[TopicPartition, None]) -> list[PartitionResult]:
        response = await cluster.request_node_once(node, request, WriteTxnMarkersResponse, deadline)
        return [
            PartitionResult(
                TopicPartition(topic.name, each.partition_index),
                error_from(each.error_code, None, f"the transaction of producer {marker.producer_id}"),
            )
            for result in response.markers
            for topic in result.topics
            for each in topic.partitions
        ]

    found = await ask_leaders(cluster, {marker.partition: None}, ask, PartitionResult, deadline)
    found[marker.partition].raise_for_error()

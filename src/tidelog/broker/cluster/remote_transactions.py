"""Transactions across brokers: markers into partitions that others lead, and questions to coordinators
elsewhere.

Both have a local side that does not know of other brokers (``broker/coordination/transaction_markers``,
``coordinator/transaction``); here each request is split by who leads what, the parts for others go over the
network, and the answers come back as one. A broker that does not answer counts as NOT_LEADER_OR_FOLLOWER or
NOT_COORDINATOR: whoever asked tries again, and by then somebody else may lead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from functools import partial
from typing import Any

from tidelog.broker.cluster.peer_broker import PeerBroker
from tidelog.coordinator.transaction.markers import MarkerRequest, MarkerWriter
from tidelog.coordinator.transaction.service import TransactionCoordinator
from tidelog.errors import ErrorCode, TidelogError
from tidelog.ids import TopicPartition
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.store import NoNode, SharedStore
from tidelog.metadata.znodes import znodes
from tidelog.scheduling.promise import Promise, gather
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from tidelog.wire.messages.produce import ProduceRequest, ProduceResponse
from tidelog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

Codes = dict[TopicPartition, ErrorCode]

_TIMEOUT_MS = 30_000


class BrokerLinks:
    """One connection to each other broker, for requests that coordinators send."""

    def __init__(
        self, broker_id: int, image: MetadataImage, store: SharedStore, peer_of: Callable[[int], PeerBroker]
    ) -> None:
        self.broker_id = broker_id
        self.image = image
        self.store = store
        self._peer_of = peer_of
        self._peers: dict[int, PeerBroker] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def peer(self, broker_id: int) -> PeerBroker:
        """The connection to a broker."""
        if broker_id not in self._peers:
            self._peers[broker_id] = self._peer_of(broker_id)
        return self._peers[broker_id]

    def markers(self, local: MarkerWriter) -> ClusterMarkers:
        """A writer of markers anywhere, over the one for partitions here."""
        return ClusterMarkers(self, local)

    def transactions(self, local: TransactionCoordinator) -> ClusterTransactions:
        """The coordinators of all brokers, over the one here."""
        return ClusterTransactions(self, local)

    async def produce(self, broker_id: int, request: ProduceRequest, timeout_ms: float) -> ProduceResponse:
        """Have another broker write records; raises what keeps it from being asked."""
        return await self.peer(broker_id).request(request, ProduceResponse, timeout_ms)

    def ask(self, question: Callable[[], Awaitable[Codes]], otherwise: Codes) -> Promise[Codes]:
        """The answer to a question, or ``otherwise`` if there is none."""
        written: Promise[Codes] = Promise()

        async def asked() -> None:
            try:
                codes = await question()
            except (TidelogError, OSError, TimeoutError) as error:
                logger.info("Another broker does not answer for a transaction: %s", error)
                codes = otherwise
            except Exception as error:  # whoever waits for the promise has to hear of anything
                logger.error("Unexpected error in asking another broker for a transaction", exc_info=error)
                codes = otherwise
            written.resolve({name: codes.get(name, code) for name, code in otherwise.items()})

        self._in_background(asked())
        return written

    def look_up(self, names: Iterable[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        """Which partitions are not in ZooKeeper."""
        gone: Promise[frozenset[TopicPartition]] = Promise()

        async def looked() -> None:
            missing: set[TopicPartition] = set()
            try:
                for topic, indexes in _by_topic(names).items():
                    there = await self._partitions_of(topic)
                    missing.update(TopicPartition(topic, each) for each in indexes if each not in there)
            except Exception as error:  # as in ask: a znode may hold anything
                gone.fail(error)
            else:
                gone.resolve(frozenset(missing))

        self._in_background(looked())
        return gone

    async def _partitions_of(self, topic: str) -> Collection[int]:
        try:
            raw, _ = await self.store.get(znodes.topic_path(topic))
        except NoNode:
            return ()
        return znodes.TopicAssignment.decode(topic, raw).partitions

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ask no more."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(peer.close() for peer in self._peers.values()))


class ClusterMarkers:
    """Satisfies ``MarkerWriter`` for partitions anywhere in the cluster."""

    def __init__(self, links: BrokerLinks, local: MarkerWriter) -> None:
        self._links = links
        self._local = local

    def write(self, request: MarkerRequest) -> Promise[Codes]:
        """What became of each partition, wherever it is led."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for name in request.partitions:
            known = self._links.image.partition(*name)
            leader = self._links.broker_id if known is None else known.leader
            by_leader.setdefault(leader, []).append(name)
        written = [self._write_at(leader, request, names) for leader, names in by_leader.items()]
        return gather(written).then(_merged)

    def gone(self, partitions: frozenset[TopicPartition]) -> Promise[frozenset[TopicPartition]]:
        """Those that are not in ZooKeeper: of the others the controller has not told this broker yet."""
        return self._links.look_up(partitions)

    def _write_at(self, leader: int, request: MarkerRequest, names: list[TopicPartition]) -> Promise[Codes]:
        part = request._replace(partitions=tuple(names))
        if leader == self._links.broker_id:
            return self._local.write(part)
        otherwise = dict.fromkeys(names, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if leader not in self._links.image.brokers:
            return Promise.of(otherwise)
        return self._links.ask(partial(self._send, leader, part), otherwise)

    async def _send(self, leader: int, request: MarkerRequest) -> Codes:
        marker = WritableTxnMarker(
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            transaction_result=request.committed,
            coordinator_epoch=request.coordinator_epoch,
            transaction_version=request.transaction_version,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in _by_topic(request.partitions).items()
            ],
        )
        response = await self._links.peer(leader).request(
            WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, _TIMEOUT_MS
        )
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for answer in response.markers
            for topic in answer.topics
            for each in topic.partitions
        }


class ClusterTransactions:
    """Adds partitions to transactions, or verifies them, at the coordinator that is responsible (KIP-890)."""

    def __init__(self, links: BrokerLinks, local: TransactionCoordinator) -> None:
        self._links = links
        self._local = local

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        verify_only: bool,
    ) -> Promise[Codes]:
        """What the coordinator says of each partition."""
        names = tuple(partitions)
        known = self._links.image.partition(self._local.TOPIC, self._local.partition_for(transactional_id))
        leader = self._links.broker_id if known is None else known.leader
        if leader == self._links.broker_id:
            return self._local.add_or_verify(
                transactional_id, producer_id, producer_epoch, names, verify_only
            )
        otherwise = dict.fromkeys(names, ErrorCode.NOT_COORDINATOR)
        if leader not in self._links.image.brokers:
            return Promise.of(otherwise)
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=topic, partitions=indexes)
                for topic, indexes in _by_topic(names).items()
            ],
        )
        return self._links.ask(partial(self._send, leader, transaction, names), otherwise)

    async def _send(
        self, leader: int, transaction: AddPartitionsToTxnTransaction, names: tuple[TopicPartition, ...]
    ) -> Codes:
        response = await self._links.peer(leader).request(
            AddPartitionsToTxnRequest(transactions=[transaction]), AddPartitionsToTxnResponse, _TIMEOUT_MS
        )
        if response.error_code != ErrorCode.NONE:
            return dict.fromkeys(names, ErrorCode(response.error_code))
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for result in response.results_by_transaction
            for topic in result.topic_results
            for each in topic.results_by_partition
        }


def _by_topic(names: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for name in names:
        topics.setdefault(name.topic, []).append(name.partition)
    return topics


def _merged(parts: list[Codes]) -> Codes:
    return {name: code for part in parts for name, code in part.items()}

"""The requests of a producer besides Produce: producer ids, and what a transaction says to its coordinators.

Each public coroutine carries one operation to its end, through moved and loading coordinators, for as long as
the producer lives: the caller decides how long it waits, and an operation that outlived its caller's patience
is still the same one when it is asked for again. ``transaction_coordinators`` says what refusals mean;
``transactional_offsets`` has what is about groups.

InitProducerId 0 to 5, AddPartitionsToTxn 0 to 3, EndTxn 0 to 4 (5 with transaction version 2).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.retry import Backoff
from tidelog.client.errors import is_retriable
from tidelog.client.producer._transaction.sequences import ProducerIdentity
from tidelog.client.producer._transaction.transaction_coordinators import (
    FENCED,
    TransactionCoordinators,
    pause,
    words,
)
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.client.producer._transaction.transaction_states import TransactionState
from tidelog.client.producer._transaction.transactional_offsets import TransactionalOffsets
from tidelog.client.producer.errors import TransactionAbortableError
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_E = ErrorCode
_FATAL = frozenset(
    {_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _E.INVALID_TXN_STATE, _E.INVALID_PRODUCER_ID_MAPPING}
)
# While the transaction before still completes there is no use in waiting long (KAFKA-5482).
_FIRST_ADD_BACKOFF_MS = 20
_INIT_MAX_VERSION = 5
_ADD_PARTITIONS_MAX_VERSION = 3
_VERSION_1_END_TXN = 4
_BUMPS_SINCE = 3
_NO_TIMEOUT_MS = 2**31 - 1


class TransactionalRequests:
    """Talks to the coordinators of one producer."""

    def __init__(self, cluster: Cluster, manager: TransactionManager, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self._manager = manager
        self._timeout_ms = transaction_timeout_ms
        self._coordinators = TransactionCoordinators(cluster, manager)
        self.offsets = TransactionalOffsets(self._coordinators, manager)

    async def acquire_producer_id(self) -> None:
        """A producer id for idempotence; any broker gives one."""
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TIMEOUT_MS)
        backoff = self._cluster.backoff()
        while True:
            try:
                response = await self._cluster.request_any(request, InitProducerIdResponse)
            except Exception as error:
                if not is_retriable(error):
                    self._manager.fail_for_good(error)
                    raise
                await pause(backoff)
                continue
            code = ErrorCode(response.error_code)
            if not code:
                self._manager.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
                return
            if not code.retriable:
                refusal = KafkaError(code, f"no producer id for idempotence: {words(code)}")
                self._manager.fail_for_good(refusal)
                raise refusal
            await pause(backoff)

    async def init_producer(self, current: ProducerIdentity | None = None) -> None:
        """The transactional id's producer id, fencing older producers; of ``current`` the next epoch only."""
        transactional_id = self._coordinators.transactional_id

        def build(version: int) -> InitProducerIdRequest:
            self._manager.can_bump_epoch = version >= _BUMPS_SINCE
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms
            )
            if current is not None and version >= _BUMPS_SINCE:
                request.producer_id, request.producer_epoch = current
            return request

        response = await self._coordinators.ask(
            build, InitProducerIdResponse, lambda answer: answer.error_code, max_version=_INIT_MAX_VERSION
        )
        code = ErrorCode(response.error_code)
        if not code:
            self._manager.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
            return
        if code in (_E.CLUSTER_AUTHORIZATION_FAILED, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            # The rights may be granted later: init_transactions can be called again.
            self._manager.to(TransactionState.UNINITIALIZED)
            raise KafkaError(code, f"transactional.id={transactional_id!r}: {words(code)}")
        raise self._coordinators.refused(code, "InitProducerId")

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Announce partitions to the coordinator (transaction version 1)."""
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            topics[topic].append(partition)
        identity = self._manager.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._coordinators.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        backoff = (
            None if self._manager.has_partitions else Backoff(_FIRST_ADD_BACKOFF_MS, _FIRST_ADD_BACKOFF_MS)
        )
        response = await self._coordinators.ask(
            lambda version: request,
            AddPartitionsToTxnResponse,
            _first_partition_error,
            max_version=_ADD_PARTITIONS_MAX_VERSION,
            backoff=backoff,
        )
        errors = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
            if each.partition_error_code
        }
        if not errors:
            self._manager.partitions_added(partitions)
            return
        for code in errors.values():
            if code in FENCED or code in _FATAL or code in (_E.UNKNOWN_PRODUCER_ID, _E.TRANSACTION_ABORTABLE):
                raise self._coordinators.refused(code, "AddPartitionsToTxn")
        named = ", ".join(f"{partition}: {words(code)}" for partition, code in sorted(errors.items()))
        error = TransactionAbortableError(f"partitions could not be added to the transaction: {named}")
        self._manager.fail_transaction(error)
        raise error

    async def end_transaction(self, commit: bool) -> None:
        """Tell the coordinator how the transaction ends."""
        manager = self._manager
        if not manager.transaction_started:
            # Nothing was sent: no broker knows of the transaction.
            await self._ended(None)
            return
        request = EndTxnRequest(
            transactional_id=self._coordinators.transactional_id,
            producer_id=manager.identity.producer_id,
            producer_epoch=manager.identity.epoch,
            committed=commit,
        )
        response = await self._coordinators.ask(
            lambda version: request,
            EndTxnResponse,
            lambda answer: answer.error_code,
            max_version=None if manager.is_version_2 else _VERSION_1_END_TXN,
        )
        code = ErrorCode(response.error_code)
        if code is _E.TRANSACTION_ABORTABLE and not commit:
            # An abort that must be aborted would never end.
            error = KafkaError(code, "the transaction cannot even be aborted; close this producer")
            manager.fail_for_good(error)
            raise error
        if code:
            raise self._coordinators.refused(code, "EndTxn")
        renewed = response.producer_id != -1
        await self._ended(
            ProducerIdentity(response.producer_id, response.producer_epoch) if renewed else None
        )

    def read_transaction_version(self, *, initial: bool) -> None:
        """Take over which version of transactions the cluster has; one that is new asks for a new epoch."""
        manager = self._manager
        before, manager.is_version_2 = (
            manager.is_version_2,
            self._cluster.finalized_feature("transaction.version") >= 2,
        )
        if manager.is_version_2 and not before and not initial:
            manager.epoch_bump_required = True

    async def _ended(self, identity: ProducerIdentity | None) -> None:
        manager = self._manager
        self.read_transaction_version(initial=False)
        bump = manager.epoch_bump_required
        manager.ended(identity)
        if bump:
            await self.init_producer(manager.identity)


def _first_partition_error(response: AddPartitionsToTxnResponse) -> int:
    """A code that asks for another attempt, if there is one; the others are looked at one by one."""
    codes = [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    for code in codes:
        if ErrorCode(code).retriable:
            return code
    return 0

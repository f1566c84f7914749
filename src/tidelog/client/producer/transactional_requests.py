"""The requests of a producer besides Produce: producer ids, and what a transaction says to its coordinators.

Each public coroutine carries one operation to its end, through moved and loading coordinators, for as long as
the producer lives: the caller decides how long it waits, and an operation that outlived its caller's patience
is still the same one when it is asked for again. What coordinators answer becomes a state of
``transaction_manager`` here: an error that the next transaction may be spared is *abortable*, one that
nothing mends is *fatal*, as in Kafka.

InitProducerId 0 to 5, AddPartitionsToTxn 0 to 3, AddOffsetsToTxn and EndTxn 0 to 4 (5 with transaction
version 2), TxnOffsetCommit 0 to 4 (5 with version 2).
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Protocol, TypeVar

from tidelog.client.cluster import Cluster
from tidelog.client.coordinators import CoordinatorType, find_coordinators
from tidelog.client.errors import error_code, is_retriable
from tidelog.client.metadata import Node
from tidelog.client.producer.errors import ProducerFencedError, TransactionAbortableError
from tidelog.client.producer.sequences import ProducerIdentity
from tidelog.client.producer.transaction_manager import TransactionManager
from tidelog.client.producer.transaction_states import TransactionState
from tidelog.client.retry import Backoff, Deadline
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from tidelog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from tidelog.wire.schema import Payload

logger = logging.getLogger(__name__)

ResponseT = TypeVar("ResponseT", bound=Payload)

_E = ErrorCode
_MOVED = frozenset({_E.NOT_COORDINATOR, _E.COORDINATOR_NOT_AVAILABLE})
_FENCED = frozenset({_E.INVALID_PRODUCER_EPOCH, _E.PRODUCER_FENCED})
_FATAL = frozenset(
    {_E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, _E.INVALID_TXN_STATE, _E.INVALID_PRODUCER_ID_MAPPING}
)
_ABORTABLE_OFFSETS = frozenset(
    {
        _E.GROUP_AUTHORIZATION_FAILED,
        _E.FENCED_INSTANCE_ID,
        _E.TRANSACTION_ABORTABLE,
        _E.UNKNOWN_MEMBER_ID,
        _E.ILLEGAL_GENERATION,
    }
)
# While the transaction before still completes there is no use in waiting long (KAFKA-5482).
_FIRST_ADD_BACKOFF_MS = 20
_INIT_MAX_VERSION = 5
_ADD_PARTITIONS_MAX_VERSION = 3
_VERSION_1_END_TXN = 4
_VERSION_1_OFFSETS = 4
_BUMPS_SINCE = 3
_NO_TIMEOUT_MS = 2**31 - 1


class GroupMetadata(Protocol):
    """Who a consumer is in its group; what its ``group_metadata()`` returns."""

    @property
    def group_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def member_id(self) -> str: ...
    @property
    def group_instance_id(self) -> str | None: ...


class CommittedOffset(Protocol):
    """An offset to commit, with what is kept beside it."""

    @property
    def offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def metadata(self) -> str: ...


class TransactionalRequests:
    """Talks to the coordinators of one producer."""

    def __init__(self, cluster: Cluster, manager: TransactionManager, transaction_timeout_ms: int) -> None:
        self._cluster = cluster
        self._manager = manager
        self._timeout_ms = transaction_timeout_ms
        self._coordinators: dict[tuple[CoordinatorType, str], Node] = {}

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
                await _pause(backoff)
                continue
            code = error_code(response.error_code)
            if not code:
                self._manager.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
                return
            if not code.retriable:
                refusal = KafkaError(code, f"no producer id for idempotence: {_words(code)}")
                self._manager.fail_for_good(refusal)
                raise refusal
            await _pause(backoff)

    async def init_producer(self, current: ProducerIdentity | None = None) -> None:
        """The transactional id's producer id, fencing older producers; of ``current`` the next epoch only."""
        transactional_id = self._transactional_id

        def build(version: int) -> InitProducerIdRequest:
            self._manager.can_bump_epoch = version >= _BUMPS_SINCE
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=self._timeout_ms
            )
            if current is not None and version >= _BUMPS_SINCE:
                request.producer_id, request.producer_epoch = current
            return request

        response = await self._ask_coordinator(
            build, InitProducerIdResponse, lambda answer: answer.error_code, max_version=_INIT_MAX_VERSION
        )
        code = error_code(response.error_code)
        if not code:
            self._manager.initialized(ProducerIdentity(response.producer_id, response.producer_epoch))
            return
        if code in (_E.CLUSTER_AUTHORIZATION_FAILED, _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED):
            # The rights may be granted later: init_transactions can be called again.
            self._manager.to(TransactionState.UNINITIALIZED)
            raise KafkaError(code, f"transactional.id={transactional_id!r}: {_words(code)}")
        raise self._refused(code, "InitProducerId")

    async def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Announce partitions to the coordinator (transaction version 1)."""
        topics: dict[str, list[int]] = defaultdict(list)
        for topic, partition in sorted(partitions):
            topics[topic].append(partition)
        identity = self._manager.identity
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()
            ],
        )
        backoff = (
            None if self._manager.has_partitions else Backoff(_FIRST_ADD_BACKOFF_MS, _FIRST_ADD_BACKOFF_MS)
        )
        response = await self._ask_coordinator(
            lambda version: request,
            AddPartitionsToTxnResponse,
            _first_partition_error,
            max_version=_ADD_PARTITIONS_MAX_VERSION,
            backoff=backoff,
        )
        errors = {
            TopicPartition(topic.name, each.partition_index): error_code(each.partition_error_code)
            for topic in response.results_by_topic_v3_and_below
            for each in topic.results_by_partition
            if each.partition_error_code
        }
        if not errors:
            self._manager.partitions_added(partitions)
            return
        for code in errors.values():
            if (
                code in _FENCED
                or code in _FATAL
                or code in (_E.UNKNOWN_PRODUCER_ID, _E.TRANSACTION_ABORTABLE)
            ):
                raise self._refused(code, "AddPartitionsToTxn")
        named = ", ".join(f"{partition}: {_words(code)}" for partition, code in sorted(errors.items()))
        error = TransactionAbortableError(f"partitions could not be added to the transaction: {named}")
        self._manager.fail_transaction(error)
        raise error

    async def commit_offsets(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> None:
        """Make a group's offsets part of the transaction."""
        if self._manager.is_version_2:
            self._manager.transaction_started = True
        else:
            await self._add_offsets(group.group_id)
        pending = dict(offsets)
        backoff = self._cluster.backoff()
        while pending:
            codes = await self._commit_once(pending, group)
            for partition, code in codes.items():
                if not code:
                    pending.pop(partition, None)
                elif code in _MOVED or code is _E.REQUEST_TIMED_OUT:
                    self._coordinators.pop((CoordinatorType.GROUP, group.group_id), None)
                elif not code.retriable:
                    raise self._offsets_refused(code, group)
            if pending:
                await _pause(backoff)
            self._manager.raise_if_failed()

    async def end_transaction(self, commit: bool) -> None:
        """Tell the coordinator how the transaction ends."""
        manager = self._manager
        if not manager.transaction_started:
            # Nothing was sent: no broker knows of the transaction.
            await self._ended(None)
            return
        request = EndTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=manager.identity.producer_id,
            producer_epoch=manager.identity.epoch,
            committed=commit,
        )
        response = await self._ask_coordinator(
            lambda version: request,
            EndTxnResponse,
            lambda answer: answer.error_code,
            max_version=None if manager.is_version_2 else _VERSION_1_END_TXN,
        )
        code = error_code(response.error_code)
        if code is _E.TRANSACTION_ABORTABLE and not commit:
            # An abort that must be aborted would never end.
            error = KafkaError(code, "the transaction cannot even be aborted; close this producer")
            manager.fail_for_good(error)
            raise error
        if code:
            raise self._refused(code, "EndTxn")
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

    @property
    def _transactional_id(self) -> str:
        assert self._manager.transactional_id is not None
        return self._manager.transactional_id

    async def _add_offsets(self, group_id: str) -> None:
        identity = self._manager.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self._transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        response = await self._ask_coordinator(
            lambda version: request, AddOffsetsToTxnResponse, lambda answer: answer.error_code
        )
        code = error_code(response.error_code)
        if code is _E.GROUP_AUTHORIZATION_FAILED:
            error = KafkaError(code, f"group {group_id!r} may not be used")
            self._manager.fail_transaction(error)
            raise error
        if code:
            raise self._refused(code, "AddOffsetsToTxn")
        self._manager.transaction_started = True

    async def _commit_once(
        self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata
    ) -> dict[TopicPartition, ErrorCode]:
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = defaultdict(list)
        for (topic, partition), committed in sorted(offsets.items()):
            topics[topic].append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=committed.offset,
                    committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
                    committed_metadata=committed.metadata,
                )
            )
        identity = self._manager.identity
        request = TxnOffsetCommitRequest(
            transactional_id=self._transactional_id,
            group_id=group.group_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )

        def build(version: int) -> TxnOffsetCommitRequest:
            if version < 3 and (group.member_id or group.group_instance_id or group.generation_id >= 0):
                raise KafkaError(
                    _E.UNSUPPORTED_VERSION,
                    "brokers before 2.5 cannot check the member that commits; pass the group's id alone",
                )
            return request

        response = await self._ask_coordinator(
            build,
            TxnOffsetCommitResponse,
            lambda answer: 0,
            max_version=None if self._manager.is_version_2 else _VERSION_1_OFFSETS,
            coordinator=(CoordinatorType.GROUP, group.group_id),
        )
        return {
            TopicPartition(topic.name, each.partition_index): error_code(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }

    async def _ask_coordinator(
        self,
        build: Callable[[int], Payload],
        response_type: type[ResponseT],
        code_of: Callable[[ResponseT], int],
        *,
        max_version: int | None = None,
        coordinator: tuple[CoordinatorType, str] | None = None,
        backoff: Backoff | None = None,
    ) -> ResponseT:
        """Ask until there is an answer that waiting would not change."""
        where = coordinator or (CoordinatorType.TRANSACTION, self._transactional_id)
        backoff = backoff or self._cluster.backoff()
        while True:
            try:
                node = self._coordinators.get(where) or await self._find(where)
                response = await self._cluster.ask_node(node, build, response_type, max_version=max_version)
            except Exception as error:
                self._coordinators.pop(where, None)
                if not is_retriable(error):
                    if where[0] is CoordinatorType.GROUP and _is_about_group(error):
                        self._manager.fail_transaction(error)
                    else:
                        self._manager.fail_for_good(error)
                    raise
                logger.debug("%s: %s; trying again", response_type.__name__, error)
                await _pause(backoff)
                continue
            code = error_code(code_of(response))
            if code in _MOVED:
                self._coordinators.pop(where, None)
            elif not code.retriable:
                return response
            await _pause(backoff)

    async def _find(self, where: tuple[CoordinatorType, str]) -> Node:
        kind, key = where
        found = (
            await find_coordinators(self._cluster, kind, [key], Deadline(self._cluster.request_timeout_ms))
        )[key]
        if isinstance(found, KafkaError):
            raise found
        self._coordinators[where] = found
        return found

    def _refused(self, code: ErrorCode, api: str) -> Exception:
        """The error that ``code`` means, once the producer is in the state that follows from it."""
        manager = self._manager
        if code in _FENCED:
            error: Exception = ProducerFencedError(manager.transactional_id)
            manager.fail_for_good(error)
            return error
        error = KafkaError(code, f"{api} for transactional.id={manager.transactional_id!r}: {_words(code)}")
        if code is _E.UNKNOWN_PRODUCER_ID:
            manager.fail_transaction_or_for_good(error)
        elif code is _E.TRANSACTION_ABORTABLE:
            manager.fail_transaction(error)
        else:
            manager.fail_for_good(error)
        return error

    def _offsets_refused(self, code: ErrorCode, group: GroupMetadata) -> Exception:
        if code not in _ABORTABLE_OFFSETS:
            return self._refused(code, "TxnOffsetCommit")
        error = KafkaError(
            code, f"the offsets of group {group.group_id!r} are not part of the transaction: {_words(code)}"
        )
        self._manager.fail_transaction(error)
        return error


def _first_partition_error(response: AddPartitionsToTxnResponse) -> int:
    """A code that asks for another attempt, if there is one; the others are looked at one by one."""
    codes = [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]
    for code in codes:
        if error_code(code).retriable:
            return code
    return 0


def _is_about_group(error: Exception) -> bool:
    return isinstance(error, KafkaError) and error.code is _E.GROUP_AUTHORIZATION_FAILED


async def _pause(backoff: Backoff) -> None:
    await asyncio.sleep(backoff.next_ms() / 1000)


def _words(code: ErrorCode) -> str:
    return code.name.lower().replace("_", " ")

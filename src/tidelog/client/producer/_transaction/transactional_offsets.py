"""A consumer's offsets as part of its producer's transaction: AddOffsetsToTxn and TxnOffsetCommit.

AddOffsetsToTxn 0 to 4, and none with transaction version 2; TxnOffsetCommit 0 to 4 (5 with version 2).
``transactions`` calls.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from tidelog.client._network.coordinators import CoordinatorType
from tidelog.client.producer._transaction.transaction_coordinators import (
    MOVED,
    TransactionCoordinators,
    pause,
    words,
)
from tidelog.client.producer._transaction.transaction_manager import TransactionManager
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

_E = ErrorCode
_ABORTABLE_OFFSETS = frozenset(
    {
        _E.GROUP_AUTHORIZATION_FAILED,
        _E.FENCED_INSTANCE_ID,
        _E.TRANSACTION_ABORTABLE,
        _E.UNKNOWN_MEMBER_ID,
        _E.ILLEGAL_GENERATION,
    }
)
_VERSION_1_OFFSETS = 4


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


class TransactionalOffsets:
    """The offsets that one producer commits for groups."""

    def __init__(self, coordinators: TransactionCoordinators, manager: TransactionManager) -> None:
        self._coordinators = coordinators
        self._manager = manager

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group: GroupMetadata) -> None:
        """Make a group's offsets part of the transaction."""
        if self._manager.is_version_2:
            self._manager.transaction_started = True
        else:
            await self._add_offsets(group.group_id)
        pending = dict(offsets)
        backoff = self._coordinators.backoff()
        while pending:
            codes = await self._commit_once(pending, group)
            for partition, code in codes.items():
                if not code:
                    pending.pop(partition, None)
                elif code in MOVED or code is _E.REQUEST_TIMED_OUT:
                    self._coordinators.forget(CoordinatorType.GROUP, group.group_id)
                elif not code.retriable:
                    raise self._refused(code, group)
            if pending:
                await pause(backoff)
            self._manager.raise_if_failed()

    async def _add_offsets(self, group_id: str) -> None:
        identity = self._manager.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self._coordinators.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group_id,
        )
        response = await self._coordinators.ask(
            lambda version: request, AddOffsetsToTxnResponse, lambda answer: answer.error_code
        )
        code = ErrorCode(response.error_code)
        if code is _E.GROUP_AUTHORIZATION_FAILED:
            error = KafkaError(code, f"group {group_id!r} may not be used")
            self._manager.fail_transaction(error)
            raise error
        if code:
            raise self._coordinators.refused(code, "AddOffsetsToTxn")
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
            transactional_id=self._coordinators.transactional_id,
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

        response = await self._coordinators.ask(
            build,
            TxnOffsetCommitResponse,
            lambda answer: 0,
            max_version=None if self._manager.is_version_2 else _VERSION_1_OFFSETS,
            coordinator=(CoordinatorType.GROUP, group.group_id),
        )
        return {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in response.topics
            for each in topic.partitions
        }

    def _refused(self, code: ErrorCode, group: GroupMetadata) -> Exception:
        if code not in _ABORTABLE_OFFSETS:
            return self._coordinators.refused(code, "TxnOffsetCommit")
        error = KafkaError(
            code, f"the offsets of group {group.group_id!r} are not part of the transaction: {words(code)}"
        )
        self._manager.fail_transaction(error)
        return error

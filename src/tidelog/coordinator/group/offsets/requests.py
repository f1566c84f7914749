"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete in one shard, as commands and queries.

Handlers have sorted out topics and partitions that do not exist; here the group has its say: who may commit,
what a reader may see, what may be deleted. A refusal of the group is a refusal of the whole request, metadata
that is too long one of its partition. Nothing here changes an offset: the records that come out do.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidelog.coordinator.group.group import CommitCheck
from tidelog.coordinator.group.groups import not_found
from tidelog.coordinator.group.offsets.committed_offset import NO_EXPIRY, commit_record, tombstone
from tidelog.coordinator.group.offsets.offsets import Offsets
from tidelog.coordinator.runtime import Result
from tidelog.coordinator.stored_record import StoredRecord
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import ZERO_UUID, Uuid
from tidelog.scheduling.slices import Slices
from tidelog.wire.internal_topics.consumer_offsets import OffsetCommitValue
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tidelog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

PARTITIONS_AT_ONCE = 64
"""After so many partitions others may have their turn."""
_DEFAULT_RETENTION = -1
_NO_OFFSET = -1
_MAX_INT64 = (1 << 63) - 1
_NOT_FOUND_SINCE = 9
"""From this version of OffsetCommit on clients know GROUP_ID_NOT_FOUND."""


def commit(offsets: Offsets, request: OffsetCommitRequest, api_version: int) -> Result[OffsetCommitResponse]:
    """OffsetCommit; every topic has its name and its id."""
    check = _check_commit(offsets, request, api_version)
    limit = offsets.support.config.int("offset.metadata.max.bytes")
    now_ms = offsets.context.clock.time_ms()
    retention_ms = request.retention_time_ms
    expires_at_ms = (
        NO_EXPIRY if retention_ms == _DEFAULT_RETENTION else max(0, min(now_ms + retention_ms, _MAX_INT64))
    )
    records: list[StoredRecord] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        answers: list[OffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if _is_too_long(metadata, limit):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
                if check is not None:
                    check.check(topic.name, topic.topic_id, index)
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=now_ms,
                    expire_timestamp=expires_at_ms,
                    topic_id=topic.topic_id,
                )
                records.append(commit_record(request.group_id, topic.name, index, value))
            answers.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=answers))
    return Result(records, OffsetCommitResponse(topics=topics))


def commit_in_transaction(
    offsets: Offsets, request: TxnOffsetCommitRequest, api_version: int
) -> Result[TxnOffsetCommitResponse]:
    """TxnOffsetCommit: the same within a transaction; what is told to a producer knows no member epochs."""
    try:
        return _commit_in_transaction(offsets, request, api_version)
    except KafkaError as error:
        if error.code is ErrorCode.STALE_MEMBER_EPOCH:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error
        raise


def fetch(
    offsets: Offsets, request: OffsetFetchRequestGroup, *, require_stable: bool
) -> Slices[OffsetFetchResponseGroup]:
    """OffsetFetch of one group; an unknown group has no offsets, which is no error.

    Topics that were asked for keep the id of the request; without ids (all topics) it is up to the caller.
    Each offset is what it is when its turn comes, and whether it is stable is seen at the same time.
    """
    group_id = request.group_id
    known = _may_fetch(offsets, request)
    topics: list[OffsetFetchResponseTopics] = []
    count = 0
    for topic, topic_id, indexes in _wanted(offsets, request, known):
        answers: list[OffsetFetchResponsePartitions] = []
        count += 1
        for index in indexes:
            count += 1
            if count >= PARTITIONS_AT_ONCE:
                count = 0
                yield
            committed = offsets.committed.get(group_id, topic, index) if known else None
            if require_stable and offsets.pending.is_open(group_id, topic, index):
                answer = _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
            elif committed is None or _is_of_another(committed.topic_id, topic_id):
                answer = _no_offset(index, ErrorCode.NONE)
            else:
                answer = OffsetFetchResponsePartitions(
                    partition_index=index,
                    committed_offset=committed.offset,
                    committed_leader_epoch=committed.leader_epoch,
                    metadata=committed.metadata,
                )
            answers.append(answer)
        if count >= PARTITIONS_AT_ONCE:
            count = 0
            yield
        topics.append(OffsetFetchResponseTopics(name=topic, topic_id=topic_id, partitions=answers))
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics)


def delete(offsets: Offsets, request: OffsetDeleteRequest) -> Result[OffsetDeleteResponse]:
    """OffsetDelete: offsets that are there, also those of open transactions; others need no deletion."""
    group_id = request.group_id
    group = offsets.groups.require(group_id)
    group.check_offset_delete()
    records: list[StoredRecord] = []
    topics: list[OffsetDeleteResponseTopic] = []
    for topic in request.topics:
        subscribed = group.is_subscribed_to(topic.name)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
        indexes = dict.fromkeys(partition.partition_index for partition in topic.partitions)
        for index in () if subscribed else indexes:
            if offsets.committed.get(group_id, topic.name, index) is not None or offsets.pending.is_open(
                group_id, topic.name, index
            ):
                records.append(tombstone(group_id, topic.name, index))
        topics.append(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code) for index in indexes
                ],
            )
        )
    return Result(records, OffsetDeleteResponse(topics=topics))


def _check_commit(offsets: Offsets, request: OffsetCommitRequest, api_version: int) -> CommitCheck | None:
    generation = request.generation_id_or_member_epoch
    group = offsets.groups.get(request.group_id)
    if group is None:
        if generation >= 0:
            if api_version >= _NOT_FOUND_SINCE:
                raise not_found(request.group_id)
            raise _illegal_generation(request.group_id)
        # A consumer without membership, or an admin: the group begins with the record of this commit.
        return None
    check = group.check_offset_commit(
        request.member_id, request.group_instance_id, generation, transactional=False, api_version=api_version
    )
    offsets.keep_session(group, request.member_id)
    return check


def _commit_in_transaction(
    offsets: Offsets, request: TxnOffsetCommitRequest, api_version: int
) -> Result[TxnOffsetCommitResponse]:
    check: CommitCheck | None = None
    group = offsets.groups.get(request.group_id)
    if group is not None:
        check = group.check_offset_commit(
            request.member_id,
            request.group_instance_id,
            request.generation_id,
            transactional=True,
            api_version=api_version,
        )
    elif request.generation_id >= 0:
        raise _illegal_generation(request.group_id)
    limit = offsets.support.config.int("offset.metadata.max.bytes")
    now_ms = offsets.context.clock.time_ms()
    records: list[StoredRecord] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        present = offsets.support.image.topics.get(topic.name)
        if check is not None and present is None:
            raise _illegal_generation(request.group_id)
        answers: list[TxnOffsetCommitResponsePartition] = []
        for partition in topic.partitions:
            index = partition.partition_index
            metadata = partition.committed_metadata or ""
            if _is_too_long(metadata, limit):
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                code = ErrorCode.NONE
                if check is not None and present is not None:
                    check.check(topic.name, present.id, index)
                value = OffsetCommitValue(
                    offset=partition.committed_offset,
                    leader_epoch=partition.committed_leader_epoch,
                    metadata=metadata,
                    commit_timestamp=now_ms,
                )
                records.append(commit_record(request.group_id, topic.name, index, value))
            answers.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=code))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    return Result(records, TxnOffsetCommitResponse(topics=topics))


def _wanted(
    offsets: Offsets, request: OffsetFetchRequestGroup, known: bool
) -> Iterator[tuple[str, Uuid, list[int]]]:
    """Topics and partitions to tell of; of all, if nothing is named, those that are there in their turn."""
    if request.topics is not None:
        for asked in request.topics:
            yield asked.name, asked.topic_id, asked.partition_indexes
    elif known:
        for topic in list(offsets.committed.of_group(request.group_id)):
            found = offsets.committed.of_group(request.group_id).get(topic)
            if found:
                yield topic, ZERO_UUID, list(found)


def _may_fetch(offsets: Offsets, request: OffsetFetchRequestGroup) -> bool:
    """Whether the group is known; raises if it is, and does not know the member."""
    group = offsets.groups.get(request.group_id)
    if group is None:
        return False
    try:
        group.check_offset_fetch(request.member_id, request.member_epoch)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
    return True


def _is_too_long(metadata: str, limit: int) -> bool:
    """Kafka counts UTF-16 units, whatever the option's name says."""
    return len(metadata) > limit or (
        2 * len(metadata) > limit and len(metadata.encode("utf-16-be", "surrogatepass")) > 2 * limit
    )


def _is_of_another(committed_id: Uuid, wanted_id: Uuid) -> bool:
    """Whether an offset was committed for an earlier topic of the same name (KIP-848, topic ids)."""
    return committed_id != wanted_id and committed_id != ZERO_UUID and wanted_id != ZERO_UUID


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=code
    )


def _illegal_generation(group_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.ILLEGAL_GENERATION, f"Group {group_id} does not exist, so it has no such generation."
    )

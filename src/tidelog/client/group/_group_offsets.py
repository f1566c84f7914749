"""Commits and reads offsets for one member of a group: OffsetCommit and OffsetFetch, one attempt each.

Topics go by name, so versions end at 9. Committed offsets are asked for with ``require_stable`` (KIP-447):
those that an open transaction is about to change are waited for, whatever ``isolation.level`` says, as Java
does. What a refused commit means for the membership is the caller's to say.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from tidelog.client._network.leaders import by_topic
from tidelog.client._network.retry import Backoff, Deadline, retrying
from tidelog.client.errors import error_from, is_retriable
from tidelog.client.group._coordinator_link import CoordinatorLink
from tidelog.client.group._metrics import GroupMetrics
from tidelog.client.options import ClientConfig
from tidelog.client.subscription.offsets import OffsetAndMetadata
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import NO_OFFSET, TopicPartition
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_TOPIC_NAMES_UNTIL = 9
_MANY_GROUPS_SINCE = 8
_STABLE_SINCE = 7
_GOES_AWAY = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Commit = Callable[[Offsets, Deadline], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Committer:
    """In whose name offsets are committed or asked for; the default is somebody outside of the group."""

    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


NOBODY = Committer()


class GroupOffsets:
    """The committed offsets of one group."""

    def __init__(self, link: CoordinatorLink, config: ClientConfig, metrics: GroupMetrics) -> None:
        self._link = link
        self._metrics = metrics
        self._backoff_ms = config.int("retry.backoff.ms"), config.int("retry.backoff.max.ms")

    async def retry(
        self, attempt: Callable[[], Awaitable[None]], deadline: Deadline, *, is_leaving: bool = False
    ) -> None:
        """Commit, again after errors that pass, until ``deadline``; then the last error is raised.

        A topic that does not exist may come; who is about to leave a partition does not wait for it.
        """

        def is_worth_it(error: BaseException) -> bool:
            unknown = isinstance(error, KafkaError) and error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return may_pass(error) and not (unknown and is_leaving)

        await retrying(attempt, deadline, backoff=self._backoff(), retriable=is_worth_it)

    def _backoff(self) -> Backoff:
        return Backoff(*self._backoff_ms)

    async def commit(self, committer: Committer, offsets: Offsets, deadline: Deadline) -> None:
        """Commit once; raises the first refusal, and takes notice of coordinators that have moved."""
        request = _commit_request(self._link.group_id, committer, offsets)
        asking = self._link.ask(request, OffsetCommitResponse, deadline, max_version=_TOPIC_NAMES_UNTIL)
        response = await self._metrics.timed(self._metrics.commit_ms, asking)
        denied: list[str] = []
        for topic in response.topics:
            for each in topic.partitions:
                code = ErrorCode(each.error_code)
                if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                    denied.append(topic.name)
                elif code:
                    raise self._refusal(code, TopicPartition(topic.name, each.partition_index))
        if denied:
            names = ", ".join(sorted(set(denied)))
            raise KafkaError(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"this client may not commit offsets of topics {names}"
            )
        self._metrics.committed_at = time.monotonic()

    async def fetch(
        self, committer: Committer, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets, None where there is none; tries again until ``deadline``."""

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata | None]:
            return await self._fetch_once(committer, partitions, deadline)

        return await retrying(attempt, deadline, backoff=self._backoff())

    async def _fetch_once(
        self, committer: Committer, partitions: Collection[TopicPartition], deadline: Deadline
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        group_id = self._link.group_id

        def build(version: int) -> OffsetFetchRequest:
            return _fetch_request(version, group_id, committer, partitions)

        response = await self._link.ask(build, OffsetFetchResponse, deadline, max_version=_TOPIC_NAMES_UNTIL)
        topics: list[OffsetFetchResponseTopics] | list[OffsetFetchResponseTopic] = response.topics
        code = response.error_code
        for group in response.groups:
            topics, code = group.topics, group.error_code
        self._link.note(code)
        error = error_from(code, None, f"group {group_id!r}")
        if error is not None:
            raise error
        found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(partitions)
        for topic in topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    raise _unreadable(ErrorCode(each.error_code), partition)
                if each.committed_offset != NO_OFFSET:
                    found[partition] = OffsetAndMetadata(
                        each.committed_offset, each.committed_leader_epoch, each.metadata or ""
                    )
        return found

    def _refusal(self, code: ErrorCode, partition: TopicPartition) -> KafkaError:
        self._link.note(code)
        if code is ErrorCode.REQUEST_TIMED_OUT:
            self._link.lost(code.name)
        what = code.name.lower().replace("_", " ")
        return KafkaError(
            code, f"the offset of {partition} was not committed for group {self._link.group_id!r}: {what}"
        )


def may_pass(error: BaseException) -> bool:
    """Whether a commit that failed so may succeed later."""
    if isinstance(error, KafkaError):
        return error.code in _GOES_AWAY
    return is_retriable(error)


def _unreadable(code: ErrorCode, partition: TopicPartition) -> KafkaError:
    if code is ErrorCode.UNSTABLE_OFFSET_COMMIT:
        return KafkaError(code, f"the offset of {partition} is about to be changed by an open transaction")
    what = code.name.lower().replace("_", " ")
    return KafkaError(code, f"the committed offset of {partition} cannot be read: {what}")


def _commit_request(group_id: str, committer: Committer, offsets: Offsets) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=committer.generation_id,
        member_id=committer.member_id,
        group_instance_id=committer.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=at.offset,
                        committed_leader_epoch=at.leader_epoch,
                        committed_metadata=at.metadata,
                    )
                    for number, at in numbers.items()
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ],
    )


def _fetch_request(
    version: int, group_id: str, committer: Committer, partitions: Collection[TopicPartition]
) -> OffsetFetchRequest:
    topics = by_topic(dict.fromkeys(partitions))
    stable = version >= _STABLE_SINCE
    if version < _MANY_GROUPS_SINCE:
        old = [
            OffsetFetchRequestTopic(name=topic, partition_indexes=list(numbers))
            for topic, numbers in topics.items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=old, require_stable=stable)
    group = OffsetFetchRequestGroup(
        group_id=group_id,
        member_id=committer.member_id or None,
        member_epoch=committer.generation_id,
        topics=[
            OffsetFetchRequestTopics(name=topic, partition_indexes=list(numbers))
            for topic, numbers in topics.items()
        ],
    )
    return OffsetFetchRequest(groups=[group], require_stable=stable)

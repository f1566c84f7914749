"""OffsetCommit, OffsetFetch and OffsetDelete for one group, as cases of several modules need them."""

from __future__ import annotations

from tests.compat.side_by_side.side import Side

from tidelog.ids import Uuid
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

COMMIT_VERSIONS = range(2, 11)
FETCH_VERSIONS = range(1, 11)
IDS_SINCE = 10


def place(
    offset: int = 5, partition: int = 0, metadata: str | None = "", epoch: int = -1
) -> OffsetCommitRequestPartition:
    """One partition in a commit."""
    return OffsetCommitRequestPartition(
        partition_index=partition,
        committed_offset=offset,
        committed_leader_epoch=epoch,
        committed_metadata=metadata,
    )


def commit_topic(
    side: Side,
    name: str,
    *places: OffsetCommitRequestPartition,
    version: int = 9,
    topic_id: Uuid | None = None,
) -> OffsetCommitRequestTopic:
    """The partitions of one topic in a commit, by name or by id as the version has it."""
    found = OffsetCommitRequestTopic(name=name, partitions=list(places))
    if version >= IDS_SINCE:
        found.topic_id = side.topic_id(name) if topic_id is None else topic_id
    return found


def commit_request(group_id: str, *topics: OffsetCommitRequestTopic, **more: object) -> OffsetCommitRequest:
    """A commit of nobody in particular, unless ``more`` says who."""
    fields = {
        {"generation": "generation_id_or_member_epoch", "instance_id": "group_instance_id"}.get(
            name, name
        ): value
        for name, value in more.items()
    }
    return OffsetCommitRequest(group_id=group_id, topics=list(topics), **fields)  # type: ignore[arg-type]


def commit(
    side: Side,
    group_id: str,
    topic: str,
    *places: OffsetCommitRequestPartition,
    version: int = 9,
    **more: object,
) -> object:
    """Commit offsets of one topic."""
    wanted = commit_topic(side, topic, *(places or (place(),)), version=version)
    return side.ask(version, commit_request(group_id, wanted, **more))


def offsets_request(
    side: Side,
    group_id: str,
    topics: dict[str, list[int]] | None,
    *,
    version: int = 9,
    require_stable: bool = False,
    member: tuple[str | None, int] | None = None,
) -> OffsetFetchRequest:
    """The offsets of a group's partitions, or of all of them."""
    request = OffsetFetchRequest()
    if version >= 7:
        request.require_stable = require_stable
    if version < 8:
        request.group_id = group_id
        request.topics = (
            topics
            if topics is None
            else [
                OffsetFetchRequestTopic(name=name, partition_indexes=parts) for name, parts in topics.items()
            ]
        )
        return request
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    if topics is not None:
        group.topics = [
            OffsetFetchRequestTopics(
                name=name,
                partition_indexes=parts,
                **({"topic_id": side.topic_id(name)} if version >= IDS_SINCE else {}),
            )
            for name, parts in topics.items()
        ]
    if member is not None:
        group.member_id, group.member_epoch = member
    request.groups = [group]
    return request


def offsets(
    side: Side, group_id: str, topics: dict[str, list[int]] | None = None, *, version: int = 9, **more: object
) -> object:
    """What a group has committed, topics by name."""
    answer = side.ask(version, offsets_request(side, group_id, topics, version=version, **more))  # type: ignore[arg-type]
    if topics is None and isinstance(answer, dict):
        for group in answer.get("groups", [answer]):
            group["topics"].sort(key=lambda each: each.get("name", "") or str(each.get("topic_id")))
            for topic in group["topics"]:
                topic["partitions"].sort(key=lambda each: each["partition_index"])
    return answer


def delete_offsets(side: Side, group_id: str, topics: dict[str, list[int]]) -> object:
    wanted = [
        OffsetDeleteRequestTopic(
            name=name, partitions=[OffsetDeleteRequestPartition(partition_index=each) for each in parts]
        )
        for name, parts in topics.items()
    ]
    return side.ask(0, OffsetDeleteRequest(group_id=group_id, topics=wanted))

"""Members of classic groups, as the tests here need them: joined, synced, or just with an id."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypedDict

from tests.rigs.coordinator import GroupHarness, answer

from tidelog.coordinator.group.classic.group import ClassicGroup, ClassicState
from tidelog.errors import ErrorCode
from tidelog.scheduling.promise import Promise
from tidelog.wire.codec import encode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription
from tidelog.wire.messages.join_group import JoinGroupResponse

INITIAL_DELAY_MS = 3000


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer of these topics tells in JoinGroup."""
    body = encode(ConsumerProtocolSubscription(topics=list(topics)), version)
    return version.to_bytes(2, "big") + body


def group(harness: GroupHarness, group_id: str = "g") -> ClassicGroup:
    """The group itself."""
    found = harness.shard_of(group_id).groups.get(group_id)
    assert isinstance(found, ClassicGroup)
    return found


def new_id(harness: GroupHarness, group_id: str = "g", **options: Any) -> str:
    """An id, given with MEMBER_ID_REQUIRED."""
    response = answer(harness.join(group_id, **options))
    assert response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return response.member_id


class Timeouts(TypedDict):
    """The timeouts of a member."""

    session_timeout_ms: int
    rebalance_timeout_ms: int


def join(
    harness: GroupHarness, group_id: str = "g", **options: Any
) -> tuple[str, Promise[JoinGroupResponse]]:
    """A new dynamic member whose JoinGroup waits."""
    member_id = new_id(harness, group_id, **options)
    return member_id, harness.join(group_id, member_id, **options)


def sync_all(harness: GroupHarness, joined: Iterable[JoinGroupResponse], group_id: str = "g") -> int:
    """Every member syncs, the leader last; each is assigned its own id. Gives the generation."""
    responses = list(joined)
    leader = responses[0].leader
    assignments = {each.member_id: each.member_id.encode() for each in responses}
    waiting = []
    for each in sorted(responses, key=lambda response: response.member_id == leader):
        own = assignments if each.member_id == leader else {}
        waiting.append(
            harness.sync(
                group_id,
                each.member_id,
                each.generation_id,
                own,
                protocol_type=each.protocol_type,
                protocol_name=each.protocol_name,
            )
        )
    for reply in waiting:
        assert answer(reply).error_code == ErrorCode.NONE
    return responses[0].generation_id


def stable(
    harness: GroupHarness, count: int, group_id: str = "g", *, static: bool = False, **options: Any
) -> tuple[int, list[str]]:
    """A group of ``count`` members in Stable; generation and member ids, the leader first."""
    if static:
        replies = [harness.join(group_id, instance_id=f"i{n}", **options) for n in range(count)]
    else:
        replies = [join(harness, group_id, **options)[1] for _ in range(count)]
    # A second delay, because members joined during the first.
    harness.advance(INITIAL_DELAY_MS)
    harness.advance(INITIAL_DELAY_MS)
    responses = [answer(reply) for reply in replies]
    generation_id = sync_all(harness, responses, group_id)
    assert group(harness, group_id).state is ClassicState.STABLE
    leader = responses[0].leader
    ids = sorted((each.member_id for each in responses), key=lambda member_id: member_id != leader)
    return generation_id, ids


def keep_alive(harness: GroupHarness, generation_id: int, *member_ids: str, group_id: str = "g") -> None:
    """A heartbeat of each."""
    for member_id in member_ids:
        code = harness.heartbeat(group_id, member_id, generation_id).error_code
        assert code in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)

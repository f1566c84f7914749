"""JoinGroup and SyncGroup: who gets in, under which id and generation, and with which protocol."""

from __future__ import annotations

from typing import TypedDict

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_requests import (
    JOIN_VERSIONS,
    METADATA,
    Member,
    alone,
    described,
    group_of,
    join_request,
    protocols,
    rebalance,
    subscription,
    sync_request,
    together,
    wait_for_state,
)
from tests.compat.side_by_side.side import Side

from tidelog.wire.api import ApiKey


@case(versions=JOIN_VERSIONS)
def whole_life(side: Side, version: int) -> object:
    """From the first join to the leave, every request in the version that went with this join."""
    group_id = group_of(side)
    member = Member(side, group_id, version=version)
    seen = [described(side, group_id)]
    if version >= 4:
        seen += [side.ask(version, member.request()), described(side, group_id)]
    seen.append(member.join())
    seen.append(described(side, group_id))
    seen.append(member.sync((member.member_id, b"all of it"), version=min(version, 5)))
    seen.append(member.heartbeat(min(version, 4)))
    seen.append(described(side, group_id, version=min(version, 6)))
    seen.append(member.leave(min(version, 5)))
    seen.append(described(side, group_id))
    return seen


@case((499, 500, 501, 0, -1, 1_800_000, 1_800_001, 2**31 - 1, -(2**31)), versions=(0, 4, 5, 9))
def session_timeout(side: Side, timeout_ms: int, version: int) -> object:
    group_id = group_of(side)
    request = join_request(group_id, session_timeout_ms=timeout_ms)
    return [side.ask(version, request), described(side, group_id)]


@case((-1, 0, 1, 2**31 - 1))
def rebalance_timeout(side: Side, timeout_ms: int) -> object:
    """Whoever does not sync within it is put out."""
    member = Member(side, group_of(side))
    answer = member.join(rebalance_timeout_ms=timeout_ms)
    wait_for_state(side, member.group_id, "CompletingRebalance" if timeout_ms > 1 else "Empty")
    return [answer, described(side, member.group_id)]


@case(versions=JOIN_VERSIONS)
def no_group_id(side: Side, version: int) -> object:
    return side.ask(version, join_request(""))


@case((" ", "a b", "x" * 300, "/", "…", "."))
def odd_group_id(side: Side, stem: str) -> object:
    return Member(side, f"{side.prefix}{stem}").join()


PROTOCOLS: dict[str, dict[str, object]] = {
    "none": {"protocols": []},
    "no-type": {"protocol_type": ""},
    "neither": {"protocol_type": "", "protocols": []},
    "no-name": {"protocols": protocols(("", METADATA))},
    "no-metadata": {"protocols": protocols(("a", b""))},
    "other-type": {"protocol_type": "connect"},
    "odd-type": {"protocol_type": "\u00e9 x"},
    "many": {"protocols": protocols(*((f"p{each}", METADATA) for each in range(50)))},
}


@case(PROTOCOLS, versions=(0, 5, 9))
def first_with_odd_protocols(side: Side, given: dict[str, object], version: int) -> object:
    member = Member(side, group_of(side), version=version)
    return [member.try_to_join(**given), described(side, member.group_id)]


SECOND: dict[str, dict[str, object]] = {
    "none": {"protocols": []},
    "no-type": {"protocol_type": ""},
    "other-type": {"protocol_type": "connect"},
    "nothing-in-common": {"protocols": protocols(("roundrobin", METADATA))},
    "other-case": {"protocols": protocols(("Range", METADATA))},
}


@case(SECOND, versions=(0, 3, 4, 9))
def second_with_odd_protocols(side: Side, given: dict[str, object], version: int) -> object:
    member = alone(side)
    answer = side.ask(version, join_request(member.group_id, **given))
    return [answer, described(side, member.group_id), member.heartbeat()]


@case(SECOND)
def joining_again_with_odd_protocols(side: Side, given: dict[str, object]) -> object:
    member = alone(side)
    return [member.join(**given), described(side, member.group_id), member.heartbeat()]


@case(SECOND)
def empty_group_takes_other_protocols(side: Side, given: dict[str, object]) -> object:
    """Nobody is left whose protocols would bind the next one."""
    alone(side).leave()
    member = Member(side, group_of(side))
    return [
        side.ask(9, join_request(member.group_id, **given)),
        member.join(protocol_type="connect"),
        described(side, member.group_id),
    ]


@case({"unknown-group": False, "known-group": True}, versions=JOIN_VERSIONS)
def unknown_member(side: Side, known: bool, version: int) -> object:
    member = alone(side) if known else None
    answer = side.ask(version, join_request(group_of(side), "nobody"))
    return [answer, described(side, group_of(side)), member and member.heartbeat()]


@case(versions=JOIN_VERSIONS)
def two_members(side: Side, version: int) -> object:
    first = alone(side, version=version, metadata=subscription("topic-0"))
    second = Member(side.another(), first.group_id, version=version, metadata=subscription("topic-1"))
    answers = rebalance([first], [second])
    return [answers, described(side, first.group_id), first.heartbeat(), second.heartbeat()]


@case()
def three_members_and_one_leaves(side: Side) -> object:
    members = together(side, count=3)
    seen = [described(side, members[0].group_id), members[2].leave()]
    seen += rebalance(members[:2], [])
    return [*seen, described(side, members[0].group_id)]


@case()
def leader_leaves(side: Side) -> object:
    first, second = together(side)
    seen = [first.leave(), *rebalance([second], [])]
    return [*seen, described(side, first.group_id), first.heartbeat()]


VOTES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "same-order": (("a", "b"), ("a", "b")),
    "other-order": (("a", "b"), ("b", "a")),
    "one-in-common": (("a", "b"), ("c", "b")),
    "second-of-both": (("x", "b", "a"), ("y", "b", "a")),
}


@case(VOTES)
def protocol_is_voted_for(side: Side, given: tuple[tuple[str, ...], tuple[str, ...]]) -> object:
    mine, yours = ([(name, subscription(name)) for name in each] for each in given)
    first = Member(side, group_of(side))
    first.join(protocols=protocols(*mine))
    first.sync((first.member_id, b"all"))
    second = Member(side.another(), first.group_id)
    second.send_join(protocols=protocols(*yours))
    first.wait_until_told_to_rejoin()
    answers = [first.join(protocols=protocols(*mine)), second.await_join()]
    return answers if given[0] != given[1][::-1] else ["a tie is decided by chance"]


@case((4, 9))
def leader_joins_again_unchanged(side: Side, version: int) -> object:
    """A leader that comes again wants to assign again."""
    member = alone(side, version=version)
    return [member.join(), described(side, member.group_id), member.heartbeat()]


@case((0, 4, 9))
def follower_joins_again_unchanged(side: Side, version: int) -> object:
    first, second = together(side)
    second.version = version
    return [second.join(), described(side, first.group_id), first.heartbeat(), second.heartbeat()]


@case()
def follower_joins_again_changed(side: Side) -> object:
    first, second = together(side)
    second.metadata = subscription("new")
    second.send_join()
    first.wait_until_told_to_rejoin()
    seen = [described(side, first.group_id)]
    first.send_join()
    return [*seen, first.await_join(), second.await_join()]


@case((4, 9))
def joining_again_before_the_sync(side: Side, version: int) -> object:
    """The generation stands; the member has not heard the answer."""
    member = Member(side, group_of(side), version=version)
    seen = [member.join(), member.join(), described(side, member.group_id)]
    return [*seen, member.sync((member.member_id, b"x"))]


@case()
def joining_again_changed_before_the_sync(side: Side) -> object:
    member = Member(side, group_of(side))
    seen = [member.join()]
    member.metadata = subscription("other")
    return [*seen, member.join(), described(side, member.group_id)]


@case()
def more_than_the_group_may_have(side: Side) -> object:
    members = together(side, count=5)
    sixth = Member(side.another(), members[0].group_id)
    answers = [side.ask(version, join_request(members[0].group_id)) for version in (0, 4, 9)]
    return [answers, sixth.side.ask(9, sixth.request()), members[0].heartbeat()]


# SyncGroup


@case({"unknown-group": False, "known-group": True}, versions=range(6))
def sync_of_unknown_member(side: Side, known: bool, version: int) -> object:
    member = alone(side) if known else None
    answer = side.ask(version, sync_request(group_of(side), 1, "nobody"))
    return [answer, member and described(side, member.group_id), member and member.heartbeat()]


@case((0, 2, -1), versions=range(6))
def sync_of_other_generation(side: Side, generation: int, version: int) -> object:
    member = alone(side)
    request = sync_request(member.group_id, generation, member.member_id, (member.member_id, b"stolen"))
    return [side.ask(version, request), described(side, member.group_id), member.heartbeat()]


@case(versions=range(6))
def sync_without_group_id(side: Side, version: int) -> object:
    return side.ask(version, sync_request("", 1, "nobody"))


class SyncProtocol(TypedDict):
    """What a member that asks for its part takes for the group's protocol."""

    protocol_type: str | None
    protocol_name: str | None


SYNC_PROTOCOLS: dict[str, SyncProtocol] = {
    "right": {"protocol_type": "consumer", "protocol_name": "range"},
    "none": {"protocol_type": None, "protocol_name": None},
    "only-type": {"protocol_type": "consumer", "protocol_name": None},
    "only-name": {"protocol_type": None, "protocol_name": "range"},
    "wrong-type": {"protocol_type": "connect", "protocol_name": "range"},
    "wrong-name": {"protocol_type": "consumer", "protocol_name": "roundrobin"},
    "empty": {"protocol_type": "", "protocol_name": ""},
}


@case(SYNC_PROTOCOLS)
def sync_with_protocols(side: Side, given: SyncProtocol) -> object:
    member = Member(side, group_of(side))
    member.join()
    part = (member.member_id, b"part")
    return [member.sync(part, **given), described(side, member.group_id)]


SHARES: dict[str, tuple[tuple[str, bytes], ...]] = {
    "none": (),
    "for-nobody": (("nobody", b"part"),),
    "empty": (("", b"part"),),
    "empty-part": (("me", b""),),
    "twice": (("me", b"first"), ("me", b"second")),
    "also-for-nobody": (("me", b"mine"), ("nobody", b"part")),
}


@case(SHARES)
def sync_with_odd_assignments(side: Side, given: tuple[tuple[str, bytes], ...]) -> object:
    member = Member(side, group_of(side))
    member.join()
    parts = [(member.member_id if who == "me" else who, part) for who, part in given]
    return [member.sync(*parts), described(side, member.group_id), member.sync()]


@case(range(6))
def sync_again_when_stable(side: Side, version: int) -> object:
    """The assignment that was made is told again; a new one is not taken."""
    member = alone(side)
    return [member.sync((member.member_id, b"new"), version=version), described(side, member.group_id)]


@case()
def follower_syncs_first_and_waits(side: Side) -> object:
    first = alone(side, metadata=subscription("topic-0"))
    second = Member(side.another(), first.group_id, metadata=subscription("topic-1")).send_join()
    first.wait_until_told_to_rejoin()
    first.join()
    second.await_join()
    second.side.send(5, second.sync_request())
    seen = [described(side, first.group_id)]
    seen.append(first.sync((first.member_id, b"a"), (second.member_id, b"b")))
    return [*seen, second.side.plain_answer(ApiKey.SYNC_GROUP, 5), described(side, first.group_id)]


@case()
def waiting_sync_ends_with_a_rebalance(side: Side) -> object:
    first = alone(side, metadata=subscription("topic-0"))
    second = Member(side.another(), first.group_id, metadata=subscription("topic-1")).send_join()
    first.wait_until_told_to_rejoin()
    first.join()
    second.await_join()
    second.side.send(5, second.sync_request())
    wait_for_state(side, first.group_id, "CompletingRebalance")
    third = Member(side.another(), first.group_id, metadata=subscription("topic-2")).send_join()
    seen = [second.side.plain_answer(ApiKey.SYNC_GROUP, 5), described(side, first.group_id)]
    seen += [first.sync((first.member_id, b"late")), first.heartbeat()]
    first.send_join()
    second.send_join()
    return [*seen, first.await_join(), second.await_join(), third.await_join()]


@case()
def sync_while_others_join(side: Side) -> object:
    first = alone(side, metadata=subscription("topic-0"))
    Member(side.another(), first.group_id, metadata=subscription("topic-1")).send_join()
    first.wait_until_told_to_rejoin()
    return [first.sync((first.member_id, b"late")), described(side, first.group_id)]

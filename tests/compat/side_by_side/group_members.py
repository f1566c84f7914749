"""Heartbeat and LeaveGroup in every state of a group, static members, and members that fall silent."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_requests import (
    Member,
    alone,
    described,
    group_of,
    heartbeat_request,
    join_request,
    leave_request,
    protocols,
    rebalance,
    subscription,
    sync_request,
    together,
    wait_for_state,
)
from tests.compat.side_by_side.side import Side

HEARTBEAT_VERSIONS = range(5)
LEAVE_VERSIONS = range(6)
STATIC_JOIN_VERSIONS = range(5, 10)


def joining(side: Side) -> tuple[Member, Member]:
    """A group in the middle of a rebalance: a second member waits for the first."""
    first = alone(side, metadata=subscription("topic-0"))
    second = Member(side.another(), first.group_id, metadata=subscription("topic-1")).send_join()
    first.wait_until_told_to_rejoin()
    return first, second


# Heartbeat


@case({"unknown-group": False, "known-group": True}, versions=HEARTBEAT_VERSIONS)
def heartbeat_of_unknown_member(side: Side, known: bool, version: int) -> object:
    member = alone(side) if known else None
    answer = side.ask(version, heartbeat_request(group_of(side), 1, "nobody"))
    return [answer, member and described(side, member.group_id)]


@case((0, 2, -1, 2**31 - 1), versions=HEARTBEAT_VERSIONS)
def heartbeat_of_other_generation(side: Side, generation: int, version: int) -> object:
    member = alone(side)
    answer = side.ask(version, heartbeat_request(member.group_id, generation, member.member_id))
    return [answer, member.heartbeat()]


@case(versions=HEARTBEAT_VERSIONS)
def heartbeat_without_group_id(side: Side, version: int) -> object:
    return side.ask(version, heartbeat_request("", 1, "nobody"))


@case(versions=HEARTBEAT_VERSIONS)
def heartbeat_without_member_id(side: Side, version: int) -> object:
    member = alone(side)
    return side.ask(version, heartbeat_request(member.group_id, 1, ""))


@case(versions=HEARTBEAT_VERSIONS)
def heartbeat_to_empty_group(side: Side, version: int) -> object:
    member = alone(side)
    member.leave()
    return [member.heartbeat(version), side.ask(version, heartbeat_request(member.group_id, 2, ""))]


@case((0, 1, -1))
def heartbeat_of_one_who_has_only_an_id(side: Side, generation: int) -> object:
    member = Member(side, group_of(side)).take_an_id()
    other = alone(side, group_of(side, "other"))
    pending = Member(side, other.group_id).take_an_id()
    return [
        side.ask(4, heartbeat_request(each.group_id, generation, each.member_id))
        for each in (member, pending)
    ]


@case(versions=HEARTBEAT_VERSIONS)
def heartbeat_while_others_join(side: Side, version: int) -> object:
    first, _ = joining(side)
    stale = side.ask(version, heartbeat_request(first.group_id, 7, first.member_id))
    return [first.heartbeat(version), stale, described(side, first.group_id)]


@case(versions=HEARTBEAT_VERSIONS)
def heartbeat_before_the_sync(side: Side, version: int) -> object:
    member = Member(side, group_of(side))
    member.join()
    return [member.heartbeat(version), described(side, member.group_id)]


# LeaveGroup


@case({"unknown-group": False, "known-group": True}, versions=LEAVE_VERSIONS)
def leave_of_unknown_member(side: Side, known: bool, version: int) -> object:
    member = alone(side) if known else None
    answer = side.ask(version, leave_request(group_of(side), ("nobody", None), version=version))
    return [answer, described(side, group_of(side)), member and member.heartbeat()]


@case(versions=LEAVE_VERSIONS)
def leave_without_group_id(side: Side, version: int) -> object:
    return side.ask(version, leave_request("", ("nobody", None), version=version))


@case(versions=LEAVE_VERSIONS)
def leave_without_member_id(side: Side, version: int) -> object:
    member = alone(side)
    answer = side.ask(version, leave_request(member.group_id, ("", None), version=version))
    return [answer, member.heartbeat()]


@case(versions=LEAVE_VERSIONS)
def leave_twice(side: Side, version: int) -> object:
    member = alone(side)
    return [member.leave(version), member.leave(version), described(side, member.group_id)]


@case(versions=LEAVE_VERSIONS)
def leave_of_one_who_has_only_an_id(side: Side, version: int) -> object:
    other = alone(side)
    pending = Member(side, other.group_id).take_an_id()
    return [pending.leave(version), pending.join(), described(side, other.group_id), other.heartbeat()]


@case(versions=LEAVE_VERSIONS)
def leave_while_others_join(side: Side, version: int) -> object:
    first, second = joining(side)
    return [first.leave(version), second.await_join(), described(side, first.group_id)]


@case((3, 4, 5))
def leave_of_several(side: Side, version: int) -> object:
    """Each is answered for itself; the others stay."""
    first, second, third = together(side, count=3)
    request = leave_request(
        first.group_id, ("nobody", None), (second.member_id, None), (third.member_id, "x"), ("", "y")
    )
    seen = [side.ask(version, request)]
    return [*seen, *rebalance([first, third], []), described(side, first.group_id)]


@case((3, 4, 5))
def leave_of_nobody(side: Side, version: int) -> object:
    member = alone(side)
    return [side.ask(version, leave_request(member.group_id)), member.heartbeat()]


@case((3, 5))
def leave_of_the_same_twice_in_one(side: Side, version: int) -> object:
    member = alone(side)
    twice = [(member.member_id, None)] * 2
    return [side.ask(version, leave_request(member.group_id, *twice)), described(side, member.group_id)]


# Static members


@case(versions=STATIC_JOIN_VERSIONS)
def static_member_comes_back(side: Side, version: int) -> object:
    """In a new life it has a new id and the old assignment; nobody else notices."""
    old = alone(side, instance_id="me", version=version)
    new = Member(side, old.group_id, instance_id="me", version=version)
    seen = [new.join(), described(side, old.group_id)]
    seen += [old.heartbeat(), new.heartbeat(), old.sync(), new.sync()]
    return [*seen, described(side, old.group_id)]


@case((8, 9))
def static_leader_comes_back_to_followers(side: Side, version: int) -> object:
    first = alone(side, instance_id="one", version=version, metadata=subscription("topic-0"))
    second = Member(
        side.another(), first.group_id, subscription("topic-1"), instance_id="two", version=version
    )
    rebalance([first], [second])
    again = Member(
        side.another(), first.group_id, subscription("topic-0"), instance_id="one", version=version
    )
    seen = [again.join(), described(side, first.group_id), again.sync(), second.heartbeat()]
    return [*seen, again.heartbeat(), first.heartbeat()]


@case((5, 9))
def static_follower_comes_back_changed(side: Side, version: int) -> object:
    first = alone(side, instance_id="one", version=version, metadata=subscription("topic-0"))
    second = Member(
        side.another(), first.group_id, subscription("topic-1"), instance_id="two", version=version
    )
    rebalance([first], [second])
    again = Member(side.another(), first.group_id, subscription("new"), instance_id="two", version=version)
    return [again.join(), described(side, first.group_id), first.heartbeat(), again.sync()]


@case(("", "x" * 249, "x" * 250, "a b", ".", "..", "\u00e9"), versions=(5, 9))
def instance_ids(side: Side, instance_id: str, version: int) -> object:
    return Member(side, group_of(side), instance_id=instance_id, version=version).join()


@case({"of-nobody": "nobody", "of-another": "another", "right": "me"}, versions=STATIC_JOIN_VERSIONS)
def static_join_with_member_id(side: Side, whose: str, version: int) -> object:
    first = alone(side, instance_id="one", version=version)
    second = Member(side, first.group_id, instance_id="one", version=version)
    ids = {"nobody": "nobody", "another": "side-by-side-other", "me": first.member_id}
    second.member_id = ids[whose]
    return [second.join(), described(side, first.group_id)]


@case(versions=STATIC_JOIN_VERSIONS)
def unknown_instance_with_member_id(side: Side, version: int) -> object:
    first = alone(side, instance_id="one", version=version)
    request = join_request(first.group_id, first.member_id, group_instance_id="two")
    return [side.ask(version, request), first.heartbeat()]


@case({"fenced": ("one", "old"), "unknown-instance": ("two", "new"), "unknown-member": ("one", "x")})
def static_requests(side: Side, given: tuple[str, str]) -> object:
    """Sync, heartbeat and leave under an instance id, by one whose place is taken, and by strangers."""
    instance, who = given
    old = alone(side, instance_id="one")
    new = Member(side, old.group_id, instance_id="one")
    new.join()
    member_id = {"old": old.member_id, "new": new.member_id}.get(who, who)
    named = {"protocol_type": "consumer", "protocol_name": "range", "group_instance_id": instance}
    part = sync_request(old.group_id, new.generation, member_id, **named)
    return [
        [side.ask(version, part) for version in (3, 4, 5)],
        [
            side.ask(version, heartbeat_request(old.group_id, new.generation, member_id, instance))
            for version in (3, 4)
        ],
        [side.ask(version, leave_request(old.group_id, (member_id, instance))) for version in (3, 4, 5)],
        described(side, old.group_id),
    ]


@case({"by-instance": ("", "one"), "by-both": ("me", "one"), "by-member": ("me", None), "odd": ("", "x")})
def static_member_leaves(side: Side, given: tuple[str, str | None]) -> object:
    who, instance = given
    member = alone(side, instance_id="one")
    member_id = member.member_id if who == "me" else who
    request = leave_request(member.group_id, (member_id, instance))
    return [side.ask(5, request), described(side, member.group_id), member.heartbeat()]


@case()
def dynamic_and_static_together(side: Side) -> object:
    first = alone(side, instance_id="one", metadata=subscription("topic-0"))
    second = Member(side.another(), first.group_id, subscription("topic-1"))
    return [rebalance([first], [second]), described(side, first.group_id, version=4)]


@case((0, 3, 4))
def instance_id_before_it_was_known(side: Side, version: int) -> object:
    """In old versions an instance id cannot be told: the member is a dynamic one."""
    old = alone(side, instance_id="one")
    return side.ask(version, heartbeat_request(old.group_id, old.generation, old.member_id))


# Silence


@case((1, 9))
def silent_member_is_put_out(side: Side, version: int) -> object:
    member = Member(side, group_of(side), version=version)
    member.join(session_timeout_ms=500)
    member.sync((member.member_id, b"all"))
    wait_for_state(side, member.group_id, "Empty")
    return [described(side, member.group_id), member.heartbeat(), member.join()]


@case((5, 9))
def silent_static_member_is_put_out(side: Side, version: int) -> object:
    member = Member(side, group_of(side), version=version, instance_id="one")
    member.join(session_timeout_ms=500)
    member.sync((member.member_id, b"all"))
    wait_for_state(side, member.group_id, "Empty")
    return [described(side, member.group_id), member.heartbeat(), member.join()]


@case()
def silent_owner_of_an_id_is_forgotten(side: Side) -> object:
    """An id that is not used within the session timeout is worth nothing."""
    other = alone(side)
    member = Member(side, other.group_id).take_an_id(session_timeout_ms=500)
    silent = Member(side, group_of(side, "silent"))
    silent.join(session_timeout_ms=500)
    wait_for_state(side, silent.group_id, "Empty", "Dead")
    return [member.join(), described(side, other.group_id)]


@case()
def one_who_does_not_join_again_is_left_behind(side: Side) -> object:
    """After the rebalance timeout the others go on."""
    first = Member(side, group_of(side), subscription("topic-0"))
    first.join(rebalance_timeout_ms=600)
    first.sync((first.member_id, b"all"))
    second = Member(side.another(), first.group_id, subscription("topic-1"))
    second.send_join(rebalance_timeout_ms=600)
    return [second.await_join(), described(side, first.group_id), first.heartbeat()]


@case()
def one_who_does_not_sync_is_put_out(side: Side) -> object:
    member = Member(side, group_of(side))
    member.join(rebalance_timeout_ms=500, protocols=protocols(("range", subscription("t"))))
    wait_for_state(side, member.group_id, "Empty")
    return [described(side, member.group_id), member.sync((member.member_id, b"late"))]

"""ListGroups, DescribeGroups and DeleteGroups."""

from __future__ import annotations

from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.group_members import joining
from tests.compat.side_by_side.group_offset_requests import commit, offsets
from tests.compat.side_by_side.group_requests import (
    Member,
    alone,
    described,
    group_of,
    settled,
    subscription,
    wait_for_state,
)
from tests.compat.side_by_side.side import Side

from tidelog.wire.messages.delete_groups import DeleteGroupsRequest
from tidelog.wire.messages.describe_groups import DescribeGroupsRequest
from tidelog.wire.messages.list_groups import ListGroupsRequest

STATES = ("empty", "joined", "syncing", "joining", "pending", "dead", "offsets")


def in_state(side: Side, state: str) -> str:
    """A group that is brought to a state."""
    group_id = group_of(side, state)
    if state == "empty":
        alone(side, group_id).leave()
        wait_for_state(side, group_id, "Empty")
    elif state == "joined":
        alone(side, group_id)
    elif state == "syncing":
        Member(side, group_id).join()
    elif state == "joining":
        first = alone(side, group_id, metadata=subscription("topic-0"))
        Member(side.another(), group_id, subscription("topic-1")).send_join()
        first.wait_until_told_to_rejoin()
    elif state == "pending":
        Member(side, group_id).take_an_id()
    elif state == "offsets":
        commit(side, group_id, side.topic())
    return group_id


@case(STATES, versions=range(7))
def describe(side: Side, state: str, version: int) -> object:
    return described(side, in_state(side, state), version=version)


@case((True, False), versions=(3, 5, 6))
def describe_with_operations(side: Side, wanted: bool, version: int) -> object:
    request = DescribeGroupsRequest(
        groups=[in_state(side, "empty"), group_of(side, "none")], include_authorized_operations=wanted
    )
    settled(side)
    return side.ask(version, request)


@case(range(7))
def describe_nothing(side: Side, version: int) -> object:
    return side.ask(version, DescribeGroupsRequest(groups=[]))


@case(range(7))
def describe_without_group_id(side: Side, version: int) -> object:
    side.ask(2, DeleteGroupsRequest(groups_names=[""]))
    settled(side)
    return side.ask(version, DescribeGroupsRequest(groups=[""]))


@case((0, 6))
def describe_the_same_twice(side: Side, version: int) -> object:
    return described(side, *[in_state(side, "empty")] * 2, version=version)


def listed(side: Side, version: int = 5, **filters: list[str]) -> object:
    """The groups of this case as ListGroups shows them."""
    settled(side)
    answer = side.ask(version, ListGroupsRequest(**filters))
    if isinstance(answer, dict):
        groups = [each for each in answer["groups"] if each["group_id"].startswith(f"{side.prefix}-")]
        answer["groups"] = sorted(groups, key=lambda each: str(each["group_id"]))
    return answer


@case(versions=range(6))
def list_all(side: Side, version: int) -> object:
    for state in STATES:
        in_state(side, state)
    return listed(side, version)


FILTERS = (
    *("Empty", "Stable", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling"),
    *("stable", "STABLE", "preparingrebalance", "nonsense", "", "Unknown"),
)


@case(FILTERS, versions=(4, 5))
def list_by_state(side: Side, state: str, version: int) -> object:
    for each in STATES:
        in_state(side, each)
    return listed(side, version, states_filter=[state])


@case(("classic", "Classic", "consumer", "Consumer", "share", "streams", "nonsense", "", "unknown"))
def list_by_type(side: Side, kind: str) -> object:
    in_state(side, "joined")
    in_state(side, "offsets")
    return listed(side, types_filter=[kind])


@case()
def list_by_several(side: Side) -> object:
    for each in STATES:
        in_state(side, each)
    return [
        listed(side, states_filter=["Empty", "Stable"]),
        listed(side, states_filter=["Empty", "nonsense"]),
        listed(side, types_filter=["classic", "consumer"], states_filter=["Stable"]),
        listed(side, types_filter=["classic", "nonsense"]),
    ]


@case(STATES, versions=(0, 1, 2))
def delete(side: Side, state: str, version: int) -> object:
    group_id = in_state(side, state)
    settled(side)
    answer = side.ask(version, DeleteGroupsRequest(groups_names=[group_id]))
    return [answer, described(side, group_id), offsets(side, group_id)]


@case(versions=(0, 1, 2))
def delete_without_group_id(side: Side, version: int) -> object:
    """A group without a name can have offsets, so it can be deleted."""
    commit(side, "", side.topic())
    request = DeleteGroupsRequest(groups_names=[""])
    return [side.ask(version, request), side.ask(version, request)]


@case(versions=(0, 1, 2))
def delete_nothing(side: Side, version: int) -> object:
    return side.ask(version, DeleteGroupsRequest(groups_names=[]))


@case()
def delete_the_same_twice(side: Side) -> object:
    group_id = in_state(side, "empty")
    settled(side)
    return side.ask(2, DeleteGroupsRequest(groups_names=[group_id, group_id]))


@case()
def delete_some_of_several(side: Side) -> object:
    names = [in_state(side, state) for state in STATES]
    settled(side)
    answer = side.ask(2, DeleteGroupsRequest(groups_names=[*names, ""]))
    if isinstance(answer, dict):
        answer["results"].sort(key=lambda each: str(each["group_id"]))
    return [answer, listed(side)]


@case()
def deleted_group_starts_anew(side: Side) -> object:
    group_id = in_state(side, "empty")
    settled(side)
    side.ask(2, DeleteGroupsRequest(groups_names=[group_id]))
    member = Member(side, group_id)
    return [member.join(), described(side, group_id)]


@case()
def members_of_a_group_that_is_joining(side: Side) -> object:
    """While a group is joining nobody's metadata is shown."""
    first, _ = joining(side)
    return [described(side, first.group_id, version=version) for version in (0, 4, 6)]

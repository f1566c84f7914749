"""Listing, describing and deleting groups of both protocols, on any broker.

Groups are listed by every broker for itself; everything else goes to the group's coordinator. A group is
described as Kafka's own tools do it: first as a consumer group (ConsumerGroupDescribe), and where the broker
does not know that request or the group is none, as a classic one (DescribeGroups). Called by ``AsyncAdmin``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from tidelog.client._network.cluster import Cluster
from tidelog.client._network.coordinators import CoordinatorType, ask_coordinators
from tidelog.client._network.retry import Deadline, retrying
from tidelog.client.admin._group_members import classic_member, consumer_member
from tidelog.client.admin.group_resources import (
    GroupDescription,
    GroupListing,
    GroupResult,
    GroupState,
    GroupType,
    ListedGroups,
    group_state,
    group_type,
)
from tidelog.client.errors import error_from
from tidelog.client.metadata import Node
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.wire.messages import consumer_group_describe
from tidelog.wire.messages import describe_groups as classic_describe
from tidelog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidelog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_STATES_SINCE = 4
_TYPES_SINCE = 5


async def list_groups(
    cluster: Cluster,
    *,
    states: Collection[GroupState] = (),
    types: Collection[GroupType] = (),
    broker_ids: Collection[int] | None = None,
) -> ListedGroups:
    """See :meth:`AsyncAdmin.list_groups`."""
    deadline = cluster.deadline()
    known = (await cluster.refresh([], deadline=deadline)).nodes.values()
    nodes = [node for node in known if broker_ids is None or node.id in broker_ids]
    asked = (_list_on(cluster, node, states, types, deadline) for node in nodes)
    groups: dict[str, GroupListing] = {}
    errors: list[TidelogError] = []
    for answer in await asyncio.gather(*asked, return_exceptions=True):
        if isinstance(answer, TidelogError):
            errors.append(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            groups.update((group.group_id, group) for group in answer)
    return ListedGroups(tuple(group for _, group in sorted(groups.items())), tuple(errors))


async def _list_on(
    cluster: Cluster,
    node: Node,
    states: Collection[GroupState],
    types: Collection[GroupType],
    deadline: Deadline,
) -> list[GroupListing]:
    def build(version: int) -> ListGroupsRequest:
        if states and version < _STATES_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"broker {node.id} is older than Kafka 2.6 and does not tell the states of groups",
            )
        return ListGroupsRequest(
            states_filter=list(states) if version >= _STATES_SINCE else [],
            types_filter=list(types) if version >= _TYPES_SINCE else [],
        )

    async def attempt() -> ListGroupsResponse:
        response = await cluster.request_node(node.id, build, ListGroupsResponse, deadline)
        error = error_from(response.error_code, None, f"listing the groups of broker {node.id}")
        if error is not None:
            raise error
        return response

    response = await retrying(attempt, deadline, backoff=cluster.backoff())
    groups = [_listing(group, node) for group in response.groups]
    # A broker too old to be asked for types has classic groups only.
    return [group for group in groups if not types or group.type in types or _is_untold(group, types)]


def _is_untold(group: GroupListing, types: Collection[GroupType]) -> bool:
    return group.type is GroupType.UNKNOWN and GroupType.CLASSIC in types


def _listing(group: ListedGroup, node: Node) -> GroupListing:
    return GroupListing(
        group.group_id,
        group.protocol_type,
        group_state(group.group_state),
        group_type(group.group_type),
        node,
    )


async def describe_groups(cluster: Cluster, group_ids: Collection[str]) -> dict[str, GroupDescription]:
    """See :meth:`AsyncAdmin.describe_groups`."""
    deadline = cluster.deadline()

    async def ask(node: Node, wanted: list[str]) -> dict[str, GroupDescription]:
        found = await _describe_consumer(cluster, node, wanted, deadline)
        classic = [group_id for group_id in wanted if _may_be_classic(found.get(group_id))]
        if classic:
            for group in await _describe_classic(cluster, node, classic, deadline):
                found[group.group_id] = _more_telling(found.get(group.group_id), group)
        return found

    def refuse(group_id: str, error: KafkaError) -> GroupDescription:
        return GroupDescription(group_id, error=error)

    return await ask_coordinators(cluster, CoordinatorType.GROUP, group_ids, ask, refuse, deadline)


def _may_be_classic(found: GroupDescription | None) -> bool:
    return found is None or (
        found.error is not None
        and found.error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    )


def _more_telling(first: GroupDescription | None, second: GroupDescription) -> GroupDescription:
    """The answer to show: where both requests found no such group, the first one's text says more."""
    if first is None or first.error is None or second.error is None:
        return second
    return first if first.error.code is second.error.code else second


async def _describe_consumer(
    cluster: Cluster, node: Node, group_ids: list[str], deadline: Deadline
) -> dict[str, GroupDescription]:
    request = consumer_group_describe.ConsumerGroupDescribeRequest(group_ids=group_ids)
    response_type = consumer_group_describe.ConsumerGroupDescribeResponse
    try:
        response = await cluster.request_node_once(node, request, response_type, deadline)
    except KafkaError as error:
        if error.code is not ErrorCode.UNSUPPORTED_VERSION:
            raise
        return {}
    return {
        group.group_id: GroupDescription(
            group.group_id,
            GroupType.CONSUMER,
            group_state(group.group_state),
            "consumer",
            group.assignor_name,
            node,
            tuple(consumer_member(member) for member in group.members),
            group.group_epoch,
            group.assignment_epoch,
            error_from(group.error_code, group.error_message, f"group {group.group_id!r}"),
        )
        for group in response.groups
    }


async def _describe_classic(
    cluster: Cluster, node: Node, group_ids: list[str], deadline: Deadline
) -> Iterable[GroupDescription]:
    request = classic_describe.DescribeGroupsRequest(groups=group_ids)
    response_type = classic_describe.DescribeGroupsResponse
    response = await cluster.request_node_once(node, request, response_type, deadline)
    return [
        GroupDescription(
            group.group_id,
            GroupType.CLASSIC,
            group_state(group.group_state),
            group.protocol_type,
            group.protocol_data,
            node,
            tuple(classic_member(member, group.protocol_type) for member in group.members),
            error=error_from(group.error_code, group.error_message, f"group {group.group_id!r}"),
        )
        for group in response.groups
    ]


async def delete_groups(cluster: Cluster, group_ids: Collection[str]) -> list[GroupResult]:
    """See :meth:`AsyncAdmin.delete_groups`."""
    deadline = cluster.deadline()

    async def ask(node: Node, wanted: list[str]) -> dict[str, GroupResult]:
        request = DeleteGroupsRequest(groups_names=wanted)
        response = await cluster.request_node_once(node, request, DeleteGroupsResponse, deadline)
        return {
            each.group_id: GroupResult(
                each.group_id, error_from(each.error_code, None, f"group {each.group_id!r}")
            )
            for each in response.results
        }

    results = await ask_coordinators(cluster, CoordinatorType.GROUP, group_ids, ask, GroupResult, deadline)
    return list(results.values())

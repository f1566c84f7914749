"""Requests to coordinators of which one is dead: the others' answers count, and the next one is found."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.client._network.cluster import Cluster
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.errors import BrokerUnreachableError
from tidelog.errors import ErrorCode
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from tidelog.wire.messages.find_coordinator import Coordinator, FindCoordinatorResponse

WAIT_S = 20


class Brokers:
    """One that lives and one that is dead, which coordinates the group ``orphan`` for ``lookups`` lookups."""

    def __init__(self, living: Any, dead_port: int) -> None:
        self.living = living
        self.lookups = 1_000_000
        self._dead_port = dead_port
        living.handlers[ApiKey.FIND_COORDINATOR] = self.find
        living.handlers[ApiKey.DELETE_GROUPS] = self.delete_groups

    def find(self, request: Any, version: int) -> FindCoordinatorResponse:
        self.lookups -= 1
        return FindCoordinatorResponse(
            coordinators=[self._coordinator(key) for key in request.coordinator_keys]
        )

    def _coordinator(self, key: str) -> Coordinator:
        is_orphan = key == "orphan" and self.lookups >= 0
        port = self._dead_port if is_orphan else self.living.port
        return Coordinator(key=key, node_id=8 if is_orphan else 7, host="127.0.0.1", port=port)

    def delete_groups(self, request: Any, version: int) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=each) for each in request.groups_names]
        )


@pytest.fixture
def brokers(scripted_broker: Any) -> Brokers:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return Brokers(scripted_broker, unused.getsockname()[1])


def run(brokers: Brokers, action: Callable[[AsyncAdmin], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        options.update(retry_backoff_ms=1, reconnect_backoff_ms=1, reconnect_backoff_max_ms=5)
        living = brokers.living
        async with living, asyncio.timeout(WAIT_S), Cluster(living.address, **options) as cluster:
            await action(AsyncAdmin.of(cluster))

    asyncio.run(main())


def test_a_new_coordinator_is_found_where_the_old_one_is_dead(brokers: Brokers) -> None:
    brokers.lookups = 2

    async def action(admin: AsyncAdmin) -> None:
        deleted = await admin.delete_groups(["fine", "orphan"])
        assert [(each.group_id, each.error) for each in deleted] == [("fine", None), ("orphan", None)]

    run(brokers, action, api_timeout_ms=600_000)
    asked = [request.groups_names for _, request in brokers.living.requests(ApiKey.DELETE_GROUPS)]
    assert asked == [["fine"], ["orphan"]], "only what was not answered is asked for again"


def test_a_dead_coordinator_takes_nothing_from_the_answers_of_others(brokers: Brokers) -> None:
    async def action(admin: AsyncAdmin) -> None:
        fine, orphan = await admin.delete_groups(["fine", "orphan"])
        assert fine.error is None
        assert orphan.error is not None
        assert orphan.error.code is ErrorCode.NETWORK_EXCEPTION

    run(brokers, action, retries=2)


def test_where_nobody_has_answered_the_error_of_the_network_is_raised(brokers: Brokers) -> None:
    async def action(admin: AsyncAdmin) -> None:
        with pytest.raises(BrokerUnreachableError, match="broker 8 is advertised as"):
            await admin.delete_groups(["orphan"])

    run(brokers, action, retries=2)

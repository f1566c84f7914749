"""`partitions reassign --execute --throttle`: however it ends, a throttle is removed or spoken of."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidelog.cli.failure import Failure
from tidelog.cli.partitions import reassign
from tidelog.client.admin._reassignment_plan import Assignment
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.client.admin.cluster_resources import PartitionReassignment
from tidelog.client.admin.group_resources import PartitionResult
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    ResourceType,
    TopicDescription,
)
from tidelog.errors import ErrorCode, KafkaError, TidelogError
from tidelog.ids import TopicPartition

ORDERS = TopicPartition("orders", 0)
BEFORE: Assignment = {ORDERS: (1, 2)}
CHANGED: Assignment = {ORDERS: (2, 3)}
VERIFY = "run `tidelog partitions reassign --verify` to remove it once the reassignment completes"
REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no")


class FakeAdmin:
    """Three brokers and a topic: keeps options, and moves partitions at once or never."""

    def __init__(self) -> None:
        self.options: dict[ConfigResource, dict[str, str]] = {}
        self.assignment = dict(BEFORE)
        self.moving: dict[TopicPartition, PartitionReassignment] = {}
        self.refused_broker = ""
        self.refuses_moves = False
        self.moves_for_ever = False
        self.gives_up = False
        self.loses_answers = False

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[AlterConfigOp]]
    ) -> list[ConfigResult]:
        results = []
        for resource, operations in changes.items():
            if (resource.type, resource.name) == (ResourceType.BROKER, self.refused_broker):
                results.append(ConfigResult(resource, error=REFUSED))
                continue
            options = self.options.setdefault(resource, {})
            for each in operations:
                if each.op is AlterConfigOpType.DELETE:
                    options.pop(each.name, None)
                else:
                    options[each.name] = each.value or ""
            results.append(ConfigResult(resource))
        return results

    async def describe_configs(
        self, resources: Collection[ConfigResource], *, names: Collection[str]
    ) -> list[ConfigResult]:
        return [
            ConfigResult(
                resource,
                tuple(
                    ConfigEntry(name, value, ConfigSource.DYNAMIC_BROKER_CONFIG)
                    for name, value in self.options.get(resource, {}).items()
                    if name in names
                ),
            )
            for resource in resources
        ]

    async def list_topics(self, *, include_internal: bool) -> list[Any]:
        return [SimpleNamespace(name="orders")]

    async def describe_cluster(self) -> Any:
        return SimpleNamespace(nodes=[SimpleNamespace(id=each) for each in (1, 2, 3)])

    async def describe_topics(self, names: Collection[str]) -> dict[str, Any]:
        partitions: list[Any] = [
            SimpleNamespace(partition=each.partition, replicas=found)
            for each, found in self.assignment.items()
        ]
        return {"orders": TopicDescription("orders", partitions=tuple(partitions))}

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        return dict(self.moving)

    async def alter_partition_reassignments(self, targets: Assignment) -> list[PartitionResult]:
        if self.refuses_moves:
            return [PartitionResult(each, REFUSED) for each in targets]
        if self.moves_for_ever:
            self.moving = {each: PartitionReassignment(each, (1, 2, 3), (3,), (1,)) for each in targets}
        elif not self.gives_up:
            self.assignment |= targets
        if self.loses_answers:
            raise RequestTimeoutError("nobody answers")
        return [PartitionResult(each) for each in targets]

    @property
    def is_throttled(self) -> bool:
        return any(self.options.values())


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    monkeypatch.setattr(reassign, "_NEWS_S", 0.0)
    monkeypatch.setattr(reassign, "_POLL_S", 0.0)
    return FakeAdmin()


def execute(admin: FakeAdmin, *, wait: bool = True) -> list[TidelogError]:
    moved = reassign._execute(cast("AsyncAdmin", admin), BEFORE, CHANGED, 1000, wait=wait, kept=True)
    return list(asyncio.run(moved))


def test_it_goes_when_the_partitions_have_moved(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(admin) == []
    assert not admin.is_throttled
    assert capsys.readouterr().err.endswith("moved 1 partition\nremoved the throttle\n")


def test_it_goes_where_a_broker_refuses_it_and_nothing_is_moved(admin: FakeAdmin) -> None:
    admin.refused_broker = "3"
    assert execute(admin) == [REFUSED]
    assert not admin.is_throttled
    assert admin.assignment == BEFORE


def test_it_goes_where_every_move_is_refused(admin: FakeAdmin, capsys: pytest.CaptureFixture[str]) -> None:
    admin.refuses_moves = True
    assert execute(admin) == [REFUSED]
    assert not admin.is_throttled
    assert capsys.readouterr().err.endswith("removed the throttle\n")


def test_it_goes_where_somebody_gives_up_the_moves(admin: FakeAdmin) -> None:
    admin.gives_up = True
    (failure,) = execute(admin)
    assert isinstance(failure, Failure)
    assert "its reassignment was cancelled" in str(failure)
    assert not admin.is_throttled


def test_it_stays_where_moves_may_have_begun_and_that_is_said(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.loses_answers = admin.moves_for_ever = True
    with pytest.raises(RequestTimeoutError):
        execute(admin)
    assert admin.is_throttled
    assert capsys.readouterr().err.endswith(f"the throttle is still set: {VERIFY}\n")


def test_it_stays_without_waiting_and_that_is_said(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.moves_for_ever = True
    assert execute(admin, wait=False) == []
    assert admin.is_throttled
    assert capsys.readouterr().err.endswith(f"the throttle is still set: {VERIFY}\n")


def test_verify_removes_it_also_where_a_plan_was_not_carried_out(admin: FakeAdmin) -> None:
    asyncio.run(admin.alter_configs({ConfigResource(ResourceType.BROKER, "1"): [_rate()]}))
    verified = reassign._verify(cast("AsyncAdmin", admin), CHANGED, [], json=False)
    (failure,) = asyncio.run(verified)
    assert "is not being moved" in str(failure)
    assert not admin.is_throttled


def _rate() -> AlterConfigOp:
    return AlterConfigOp("leader.replication.throttled.rate", "1000")

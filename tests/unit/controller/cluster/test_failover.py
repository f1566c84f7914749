"""A controller dies at any moment, and its successor finishes what it had begun."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, crash_at_write, run

from tidelog.controller.cluster import topic_deletion
from tidelog.controller.cluster.leadership_nodes import MAX_OPS
from tidelog.controller.controller import MorePartitions
from tidelog.controller.topics import NewTopic
from tidelog.metadata.znodes import znodes

MOST_WRITES = 60


async def at_every_write(
    prepare: Callable[[Scene], Awaitable[None]],
    act: Callable[[Scene], Awaitable[object]],
    check: Callable[[Scene], None],
    *,
    before: bool,
) -> int:
    """Crash the controller at its first write, its second, and so on until it gets through; how many."""
    for number in range(1, MOST_WRITES):
        scene = Scene()
        await scene.add(1, 2, 3, 4)
        await prepare(scene)
        scene.check()
        has_crashed = crash_at_write(scene, 1, number, before=before)
        acting = asyncio.ensure_future(act(scene))
        await scene.settled()
        await scene.catch_up()
        if not has_crashed():
            await acting
            check(scene)
            scene.check()
            return number - 1
        await scene.add(1)
        await scene.catch_up()
        scene.check()
        check(scene)
        acting.cancel()
        for controller in list(scene.cluster.controllers.values()):
            await controller.close()
    raise AssertionError("the controller writes without end")


BEFORE = pytest.mark.parametrize("before", [True, False], ids=["before", "after"])


async def nothing(scene: Scene) -> None:
    """No preparation."""


@BEFORE
def test_a_topic_whose_creator_dies_is_there_whole_or_not_at_all(before: bool) -> None:
    def check(scene: Scene) -> None:
        if TOPIC in scene.topics():
            assert set(scene.assignment().partitions) == {0, 1, 2}

    def create(scene: Scene) -> Awaitable[object]:
        return scene.controller.create_topics([NewTopic(TOPIC, 3, 3)])

    assert asyncio.run(at_every_write(nothing, create, check, before=before)) >= 2


async def with_topic(scene: Scene) -> None:
    await scene.create((1, 2, 3), (2, 3, 4), (3, 4, 1))


@BEFORE
def test_partitions_that_were_being_added_get_leaders(before: bool) -> None:
    def grow(scene: Scene) -> Awaitable[object]:
        return scene.controller.create_partitions([MorePartitions(TOPIC, 5)])

    def check(scene: Scene) -> None:
        assert len(scene.assignment().partitions) in (3, 5)

    assert asyncio.run(at_every_write(with_topic, grow, check, before=before)) >= 2


@BEFORE
@pytest.mark.parametrize("ops", [2, MAX_OPS])
def test_a_topic_whose_deletion_has_begun_goes(
    before: bool, ops: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_deletion, "MAX_OPS", ops)

    def delete(scene: Scene) -> Awaitable[object]:
        return scene.controller.delete_topics([scene.context.topic_ids[TOPIC]])

    def check(scene: Scene) -> None:
        if not marked and TOPIC in scene.topics():
            return
        assert scene.topics() == []
        assert not scene.exists(znodes.delete_topic_path(TOPIC))
        assert not scene.exists(znodes.topic_config_path(TOPIC))
        for broker in scene.cluster.brokers.values():
            assert not broker.replicas

    marked = not before
    assert asyncio.run(at_every_write(with_topic, delete, check, before=before)) >= 2


@BEFORE
def test_a_reassignment_is_finished_by_whoever_comes_next(before: bool) -> None:
    def reassign(scene: Scene) -> Awaitable[object]:
        return scene.controller.reassign({P0: (4, 2, 3)})

    def check(scene: Scene) -> None:
        node = scene.assignment()
        assert not node.adding_replicas
        assert not node.removing_replicas
        assert node.partitions[0] in ((1, 2, 3), (4, 2, 3))
        if begun:
            assert node.partitions[0] == (4, 2, 3)
            assert set(scene.state().isr) == {4, 2, 3}

    begun = not before
    assert asyncio.run(at_every_write(with_topic, reassign, check, before=before)) >= 4


def test_replicas_that_a_replaced_reassignment_added_neither_lead_nor_stay_in_sync() -> None:
    async def with_a_new_leader(scene: Scene) -> None:
        await scene.create((2, 3))
        await scene.controller.reassign({P0: (4, 3)})
        await scene.settled()
        await scene.controller.reassign({P0: (4, 1)})
        await scene.settled()
        await scene.alter_isr((2, 3, 4))
        await scene.crash(2)
        assert scene.leader_and_isr() == (4, (3, 4))

    def replace(scene: Scene) -> Awaitable[object]:
        return scene.controller.reassign({P0: (1, 3)})

    def check(scene: Scene) -> None:
        assert scene.assignment().partitions[0] in ((4, 1), (1, 3))

    # Not after its writes: the order to delete a log may be lost with it, and the log then stays, as Kafka's.
    assert asyncio.run(at_every_write(with_a_new_leader, replace, check, before=True)) >= 4


@BEFORE
def test_a_broker_whose_failure_was_being_handled_leaves_nothing_without_a_leader(before: bool) -> None:
    async def fail(scene: Scene) -> None:
        scene.cluster.crash(2)

    def check(scene: Scene) -> None:
        for partition in scene.context.all_partitions():
            assert 2 not in scene.state(partition).isr

    assert asyncio.run(at_every_write(with_topic, fail, check, before=before)) >= 2


def test_a_new_controller_finds_what_changed_while_nobody_was() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        await scene.crash(1, 2)
        assert scene.leader_and_isr() == (3, (3,))
        assert scene.controller.active_id == 3
        scene.check()
        await scene.crash(3)
        await scene.add(2, 1)
        assert scene.leader_and_isr() == (-1, (3,))
        await scene.add(3)
        assert scene.leader_and_isr() == (3, (3,))
        await scene.catch_up()
        assert set(scene.state().isr) == {1, 2, 3}
        scene.check()

    run(test)

"""There is one controller at a time: one that was succeeded changes nothing, whatever it believes."""

from __future__ import annotations

import asyncio

import pytest
from tests.rigs.memory_zookeeper import MemorySession
from tests.unit.controller.cluster.scene import P0, TOPIC, Scene, run

from tidelog.controller.cluster.events import EventQueue
from tidelog.controller.topics import NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import Delete, Set
from tidelog.metadata.znodes import znodes


def store_of(scene: Scene, broker: int) -> MemorySession:
    return scene.cluster.brokers[broker].store


def everything(scene: Scene) -> dict[str, tuple[bytes, int]]:
    """The whole tree, by path, but what brokers register."""
    found: dict[str, tuple[bytes, int]] = {}

    def walk(path: str) -> None:
        node = scene.node(path or "/")
        found[path] = node.data, node.version
        for child in node.children:
            walk(f"{path}/{child}")

    for root in ("/brokers/topics", "/config", "/admin", "/controller_epoch"):
        walk(root)
    return found


def test_the_first_broker_is_the_controller_and_every_election_raises_the_epoch() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        assert {each.active_id for each in scene.cluster.controllers.values()} == {1}
        assert znodes.decode_controller_epoch(scene.node(znodes.CONTROLLER_EPOCH).data) == 1
        await scene.crash(1)
        assert scene.context.epoch == 2
        assert znodes.decode_controller_epoch(scene.node(znodes.CONTROLLER_EPOCH).data) == 2

    run(test)


def test_a_controller_that_wakes_up_too_late_writes_nothing_and_steps_down() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        old = scene.cluster.controllers[1]
        # It is cut off in the middle of a change; meanwhile its session ends, and another one is elected.
        scene.zookeeper.suspend(store_of(scene, 1))
        asked = [
            asyncio.ensure_future(old.create_topics([NewTopic("late", 1, 1)])),
            asyncio.ensure_future(old.delete_topics([old.term.context.topic_ids[TOPIC]])),
            asyncio.ensure_future(old.reassign({P0: (3,)})),
        ]
        await scene.settled()
        scene.zookeeper.expire(store_of(scene, 1))
        await scene.settled()
        active = [broker for broker, each in scene.cluster.controllers.items() if each.is_active]
        assert active == [1, 2] or active == [1, 3]
        before = everything(scene)
        scene.zookeeper.resume(store_of(scene, 1))
        await scene.settled()
        for outcome in await asyncio.gather(*asked, return_exceptions=True):
            assert isinstance(outcome, KafkaError)
            assert outcome.code is ErrorCode.NOT_CONTROLLER
        assert not old.is_active
        assert old.active_id == active[1]
        # Its broker has come back, so states change by the new one's hand; nothing that was asked has.
        after = everything(scene)
        assert after["/brokers/topics/t"] == before["/brokers/topics/t"]
        assert "/brokers/topics/late" not in after
        assert "/admin/delete_topics/t" not in after
        scene.check()

    run(test)


def test_a_controller_whose_node_was_deleted_is_succeeded_and_cannot_write() -> None:
    """As Kafka's operators do to force an election: the session of the old one lives on."""

    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        term = scene.controller.term
        store = scene.zookeeper.session()
        await store.delete(znodes.CONTROLLER)
        await scene.settled()
        assert scene.context.epoch == 2
        before = everything(scene)
        with pytest.raises(Exception, match="controller"):
            await term.topics.delete([term.context.topic_ids[TOPIC]])
        assert everything(scene) == before
        scene.check()

    run(test)


def test_a_write_under_an_old_epoch_is_refused_and_ends_the_term() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        old = scene.cluster.controllers[1]
        # Somebody raises the epoch without this broker hearing of it by the watch.
        await scene.write(Set(znodes.CONTROLLER_EPOCH, znodes.encode_controller_epoch(7)))
        before = everything(scene)
        with pytest.raises(KafkaError) as refusal:
            await old.delete_topics([old.term.context.topic_ids[TOPIC]])
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert everything(scene) == before
        assert not old.is_active
        await scene.write(Delete(znodes.CONTROLLER))
        assert scene.context.epoch == 8

    run(test)


def test_an_expired_controller_registers_again_and_takes_part() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        epoch = scene.cluster.brokers[1].epoch
        scene.zookeeper.expire(store_of(scene, 1))
        await scene.settled()
        scene.zookeeper.resume(store_of(scene, 1))
        await scene.settled()
        assert scene.cluster.brokers[1].epoch > epoch
        assert scene.context.brokers[1].epoch == scene.cluster.brokers[1].epoch
        assert 1 not in scene.state().isr
        await scene.catch_up()
        assert set(scene.state().isr) == {1, 2, 3}
        scene.check()

    run(test)


def test_alone_a_broker_that_was_expired_is_elected_again() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1)
        await scene.create((1,))
        for _ in range(3):
            scene.zookeeper.suspend(store_of(scene, 1))
            scene.zookeeper.expire(store_of(scene, 1))
            await scene.settled()
            scene.zookeeper.resume(store_of(scene, 1))
            await scene.settled()
            assert scene.leader_and_isr() == (1, (1,))
            scene.check()
        assert scene.context.epoch == 4

    run(test)


def test_brokers_refuse_what_an_older_controller_sends() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((2, 3))
        term = scene.cluster.controllers[1].term
        scene.cluster.brokers[2].controller_epoch = 9
        before = dict(scene.cluster.brokers[2].metadata)
        term.brokers.tell([2], [P0])
        await scene.settled()
        assert scene.cluster.brokers[2].metadata == before
        assert scene.cluster.brokers[2].controller_epoch == 9

    run(test)


# The queue of events


def test_an_event_that_waits_from_an_earlier_term_does_not_stand_for_one_of_this_term() -> None:
    async def main() -> None:
        queue = EventQueue(lambda: None)
        ran: list[int] = []

        def work(number: int) -> None:
            async def event() -> None:
                ran.append(number)

            queue.post("look", event, once=True)

        queue.term = 1
        work(1)
        work(2)
        queue.term = 2
        work(3)
        queue.start()
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran == [3]
        work(4)
        for _ in range(5):
            await asyncio.sleep(0)
        assert ran == [3, 4]
        await queue.close()

    asyncio.run(main())


def test_an_event_that_fails_holds_up_no_other() -> None:
    async def main() -> None:
        queue = EventQueue(lambda: None)
        queue.term = 1
        queue.start()

        async def fail() -> None:
            raise ZeroDivisionError

        async def well() -> int:
            return 7

        queue.post("failing", fail)
        with pytest.raises(ZeroDivisionError):
            await queue.run("failing", fail)
        assert await queue.run("well", well) == 7
        await queue.close()

    asyncio.run(main())

"""AlterPartition: which in-sync replicas a leader may have, and what it is told otherwise."""

from __future__ import annotations

import asyncio
from typing import cast
from unittest.mock import patch

import msgspec
import pytest
from tests.unit.controller.cluster.scene import P0, Scene, run

from tidelog.controller.cluster.context import ControllerContext, Leadership, LiveBroker, ReplicaAssignment
from tidelog.controller.cluster.isr_changes import IsrChange, change_isrs, judge
from tidelog.controller.cluster.leadership_nodes import Written
from tidelog.errors import ErrorCode, KafkaError
from tidelog.metadata.store import SharedStore, StoreError
from tidelog.metadata.znodes.znodes import BrokerRegistration, PartitionState

LEADER, EPOCH, VERSION = 1, 5, 9
ASKED = IsrChange(LEADER, EPOCH, {1: 101, 2: 102, 3: 103}, 0, VERSION)


def known(recovery_state: int = 0) -> ControllerContext:
    """Brokers 1 to 4, of which 4 shuts down; the partition is on all of them, 1 and 2 are in sync."""
    context = ControllerContext(epoch=3)
    for broker in (1, 2, 3, 4):
        registration = BrokerRegistration(broker_id=broker, endpoints=())
        context.brokers[broker] = LiveBroker(registration, 100 + broker)
    context.shutting_down.add(4)
    context.put_assignment(P0, ReplicaAssignment((1, 2, 3, 4, 5)))
    state = PartitionState(
        leader=LEADER,
        leader_epoch=EPOCH,
        isr=(1, 2) if not recovery_state else (1,),
        controller_epoch=2,
        leader_recovery_state=recovery_state,
    )
    context.leaderships[P0] = Leadership(state, VERSION)
    return context


def replaced(**fields: object) -> IsrChange:
    return msgspec.structs.replace(ASKED, **fields)


@pytest.mark.parametrize(
    ("change", "refusal"),
    [
        (replaced(leader_epoch=EPOCH + 1), ErrorCode.NOT_CONTROLLER),
        (replaced(partition_epoch=VERSION + 1), ErrorCode.NOT_CONTROLLER),
        (replaced(leader_epoch=EPOCH - 1), ErrorCode.FENCED_LEADER_EPOCH),
        (replaced(leader=2), ErrorCode.INVALID_REQUEST),
        (replaced(partition_epoch=VERSION - 1), ErrorCode.INVALID_UPDATE_VERSION),
        (replaced(isr={}), ErrorCode.INVALID_REQUEST),
        (replaced(isr={1: 101, 9: 109}), ErrorCode.INVALID_REQUEST),
        (replaced(recovery_state=1), ErrorCode.INVALID_REQUEST),
        (replaced(isr={1: 101}, recovery_state=1), ErrorCode.INVALID_REQUEST),
        (replaced(isr={1: 101, 4: 104}), ErrorCode.INELIGIBLE_REPLICA),
        (replaced(isr={1: 101, 5: -1}), ErrorCode.INELIGIBLE_REPLICA),
        (replaced(isr={1: 101, 2: 102, 3: 99}), ErrorCode.INELIGIBLE_REPLICA),
    ],
)
def test_a_refusal_says_why(change: IsrChange, refusal: ErrorCode) -> None:
    assert judge(known(), P0, change) is refusal


def test_a_change_is_written_in_the_epoch_of_this_controller() -> None:
    judged = judge(known(), P0, ASKED)
    assert isinstance(judged, Leadership)
    assert judged.version == VERSION
    assert (judged.state.isr, judged.state.leader_epoch) == ((1, 2, 3), EPOCH)
    assert judged.state.controller_epoch == 3


def test_all_replicas_may_be_in_sync() -> None:
    context = known()
    context.put_assignment(P0, ReplicaAssignment((1, 2, 3)))
    assert isinstance(judge(context, P0, ASKED), Leadership)


def test_a_refused_change_is_not_written() -> None:
    change = replaced(partition_epoch=VERSION - 1)
    outcomes = asyncio.run(change_isrs(known(), cast(SharedStore, None), {P0: change}))
    assert outcomes == {P0: ErrorCode.INVALID_UPDATE_VERSION}


def test_epochs_that_are_not_said_are_not_checked() -> None:
    assert isinstance(judge(known(), P0, replaced(isr={1: -1, 3: -1})), Leadership)


def test_a_repeated_request_is_confirmed_whatever_version_it_names() -> None:
    assert judge(known(), P0, replaced(isr={2: 102, 1: 101}, partition_epoch=3)) is None


def test_a_recovering_leader_recovers_with_its_first_change() -> None:
    context = known(recovery_state=1)
    judged = judge(context, P0, replaced(isr={1: 101}))
    assert isinstance(judged, Leadership)
    assert judged.state.leader_recovery_state == 0
    assert judge(context, P0, replaced(recovery_state=1)) is ErrorCode.INVALID_REQUEST
    assert judge(context, P0, replaced(isr={1: 101}, recovery_state=1)) is None
    both = replaced(isr={1: 101, 2: 102}, recovery_state=1)
    assert judge(context, P0, both) is ErrorCode.INVALID_REQUEST
    still = judge(context, P0, replaced(isr={2: 102}, recovery_state=1))
    assert isinstance(still, Leadership)
    assert (still.state.isr, still.state.leader_recovery_state) == ((2,), 1)


@pytest.mark.parametrize(
    ("written", "outcome"),
    [
        (Written(stale=[P0]), ErrorCode.INVALID_UPDATE_VERSION),
        (Written(failed={P0: StoreError("/", "it cannot be written")}), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_could_not_be_written_is_refused_and_not_remembered(
    written: Written, outcome: ErrorCode
) -> None:
    context = known()
    before = context.leaderships[P0]

    async def write(*_: object) -> Written:
        return written

    store = cast(SharedStore, None)
    with patch("tidelog.controller.cluster.isr_changes.write_leaderships", write):
        assert asyncio.run(change_isrs(context, store, {P0: ASKED})) == {P0: outcome}
    assert context.leaderships[P0] is before


def test_an_unknown_partition_or_one_being_deleted_is_refused() -> None:
    context = known()
    assert judge(ControllerContext(), P0, ASKED) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    context.deletion_started.add(P0.topic)
    assert judge(context, P0, ASKED) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_broker_in_an_earlier_life_changes_nothing() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create((1, 2))
        before = scene.state()
        for broker, epoch in ((1, scene.cluster.brokers[1].epoch - 1), (9, 1)):
            with pytest.raises(KafkaError) as refusal:
                await scene.controller.alter_isrs(broker, epoch, lambda context: {})
            assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
        assert scene.state() == before

    run(test)


def test_everybody_hears_of_a_change_and_the_leader_gets_the_new_version() -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create((1, 2, 3))
        outcome = await scene.alter_isr((1, 3))
        assert isinstance(outcome, Leadership)
        assert outcome.version == 1
        assert outcome.state.leader_epoch == 0
        assert all(broker.metadata[P0].isr == [1, 3] for broker in scene.cluster.brokers.values())
        # Asked again, as after a lost answer.
        assert await scene.alter_isr((1, 3), partition_epoch=0) == outcome

    run(test)

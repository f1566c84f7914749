"""A reassignment is not taken back, or replaced, where the only replica in sync would be thrown away."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster.scene import P0, Scene, run

from tidelog.controller.cluster.reassignment import TargetReplicas
from tidelog.errors import ErrorCode


@pytest.mark.parametrize("target", [None, (1, 2)], ids=["taken back", "replaced"])
def test_the_last_replica_in_sync_is_kept(target: TargetReplicas) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(3, 4, 1, 2)
        await scene.create((1, 2))
        await scene.controller.reassign({P0: (3, 4)})
        await scene.settled()
        # One of the new replicas has caught up, then both old ones die.
        await scene.alter_isr((1, 2, 3))
        await scene.crash(2)
        await scene.crash(1)
        assert scene.leader_and_isr() == (3, (3,))
        refusal = (await scene.controller.reassign({P0: target}))[P0]
        await scene.settled()
        assert refusal is not None
        assert refusal.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert scene.leader_and_isr() == (3, (3,))
        assert P0 not in scene.cluster.brokers[3].deleted
        # What goes on is the reassignment that was under way.
        await scene.alter_isr((3, 4))
        await scene.settled()
        assert scene.assignment().partitions[0] == (3, 4)

    run(test)

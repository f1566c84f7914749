"""Partitions without a leader are one line in the log, however many they are and however often it looks."""

from __future__ import annotations

import logging

import pytest
from tests.unit.controller.cluster.scene import TOPIC, Scene, run

from tidelog.ids import TopicPartition

PARTITIONS = 40


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the controller has logged; threads of other tests may log, too."""
    return [
        each.getMessage()
        for each in caplog.records
        if each.levelno >= logging.WARNING and each.name.startswith("tidelog.controller")
    ]


def test_many_partitions_that_lose_their_leader_together_are_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2, 3)
        await scene.create(*[(2,)] * PARTITIONS)
        await scene.crash(2)
        (line,) = warnings(caplog)
        assert line.startswith(f"No leader for {PARTITIONS} partitions: no replica can lead"), line
        assert f"{TOPIC}-0" in line
        assert "35 more" in line
        # Elections that find the same partitions without a leader again add nothing.
        await scene.crash(3)
        await scene.add(3)
        assert warnings(caplog) == [line]
        # Once they have had a leader, a second loss is reported again.
        await scene.add(2)
        await scene.crash(2)
        assert warnings(caplog) == [line, line]

    run(test)


def test_a_shutdown_that_no_replica_can_take_over_from_leaves_the_warning_to_the_broker_that_stops(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(scene: Scene) -> None:
        await scene.add(1, 2)
        await scene.create(*[(2, 1)] * PARTITIONS)
        for index in range(PARTITIONS):
            await scene.alter_isr((2,), TopicPartition(TOPIC, index))
        with caplog.at_level(logging.INFO):
            left = await scene.controller.shut_down_broker(2, scene.cluster.brokers[2].epoch)
        assert len(left) == PARTITIONS
        assert warnings(caplog) == []
        said = [each.getMessage() for each in caplog.records if "No leader for" in each.getMessage()]
        assert len(said) == 1

    run(test)

"""A broker that cannot serve as controller leaves the office to others, and stands for it again later."""

from __future__ import annotations

import pytest
from tests.unit.controller.cluster.scene import Scene, run

from tidelog.controller.cluster import controller
from tidelog.controller.cluster.controller_term import ControllerTerm


def fail_to_begin(monkeypatch: pytest.MonkeyPatch, broker_id: int, times: int) -> None:
    real = ControllerTerm.begin
    left = times

    async def begin(term: ControllerTerm) -> None:
        nonlocal left
        if term._settings.broker_id == broker_id and left:
            left -= 1
            raise RuntimeError("planted")
        await real(term)

    monkeypatch.setattr(ControllerTerm, "begin", begin)


def test_who_fails_to_begin_is_not_elected_again_at_once_and_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(controller, "_RETRY_S", 3600)
    fail_to_begin(monkeypatch, 1, times=1000)

    async def test(scene: Scene) -> None:
        await scene.add(1)
        assert not scene.cluster.controllers[1].is_active
        await scene.add(2)
        assert scene.cluster.controllers[2].is_active
        assert scene.context.epoch == 2

    run(test)


def test_who_failed_to_begin_stands_for_election_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_RETRY_S", 0)
    fail_to_begin(monkeypatch, 1, times=1)

    async def test(scene: Scene) -> None:
        await scene.add(1)
        assert scene.cluster.controllers[1].is_active
        assert scene.context.epoch == 2

    run(test)

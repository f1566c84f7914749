"""What replays logs, compiled and interpreted."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.loading.replay_modules import ReplayModules


@pytest.fixture(scope="session", params=["compiled", "interpreted"])
def replay_modules(request: pytest.FixtureRequest) -> ReplayModules:
    if request.param == "compiled" and not ReplayModules.is_compiled():
        pytest.skip("the replay of logs is not compiled in this installation")
    return ReplayModules(request.param)

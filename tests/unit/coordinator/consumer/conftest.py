"""The coordinator that every test here starts with: one topic of six partitions."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.consumer.scene import Scene


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.topic("t", 6)
    return scene

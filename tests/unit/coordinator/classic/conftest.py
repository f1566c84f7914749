"""The coordinator that every test here starts with."""

from __future__ import annotations

import pytest
from tests.rigs.coordinator import GroupHarness


@pytest.fixture
def harness() -> GroupHarness:
    return GroupHarness()

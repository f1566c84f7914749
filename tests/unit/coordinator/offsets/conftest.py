"""The coordinator that every test here starts with."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.offsets.coordinator import Coordinator


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()

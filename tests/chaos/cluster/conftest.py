"""The seed of a scenario: the one in ``TIDELOG_CHAOS_SEED``, else one made from the test's name."""

from __future__ import annotations

import os
import zlib

import pytest


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """``TIDELOG_CHAOS_SEED=random`` draws one; it is in the report, and in what a failure prints."""
    wish = os.environ.get("TIDELOG_CHAOS_SEED", "")
    if wish == "random":
        return int.from_bytes(os.urandom(4))
    return int(wish) if wish else zlib.crc32(request.node.name.encode())

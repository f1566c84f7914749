"""Waiting for a condition, in tests: with a limit that only a test that fails ever reaches."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable

PATIENCE = float(os.environ.get("TIDELOG_TEST_PATIENCE", "1"))
"""What limits are multiplied by: for a machine that is slower than any that a limit was chosen for."""
# Long enough for a machine that does much else: a test that passes does not wait.
_TIMEOUT_S = 60.0
_POLL_S = 0.005
_ASYNC_POLL_S = 0.001


def wait_until(condition: Callable[[], object], what: str = "a condition") -> None:
    """Until ``condition()`` holds; fails, naming ``what``, if that takes a minute."""
    deadline = time.monotonic() + _TIMEOUT_S * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_POLL_S)


async def until(
    condition: Callable[[], object], what: str = "a condition", *, poll_s: float = _ASYNC_POLL_S
) -> None:
    """As ``wait_until``, while the event loop goes on; ``poll_s`` 0 looks in every turn of the loop."""
    deadline = time.monotonic() + _TIMEOUT_S * PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        await asyncio.sleep(poll_s)

"""Waiting for a condition, in tests."""

from __future__ import annotations

import time
from collections.abc import Callable

# Long enough for a machine that does much else: a test that passes does not wait.
_TIMEOUT_S = 60.0
_POLL_S = 0.005


def wait_until(condition: Callable[[], object], what: str = "a condition") -> None:
    """Until ``condition()`` holds; fails, naming ``what``, if that takes a minute."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(_POLL_S)

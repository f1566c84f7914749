"""How long an iteration over records waits: ``timeout`` seconds without one, once there is an assignment.

A group takes seconds to assign partitions to its first member, and longer while another member is busy. That
time does not count, or ``records(timeout=3)`` would end before anything can be read. It has a limit of its
own: ``default.api.timeout.ms`` while something keeps the consumer from its group, else
``max.poll.interval.ms``, by which every other member has rejoined or is left out. Then the iteration fails
with the reason. Used by ``records`` of both consumers, from one thread at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from tidelog.client._network.retry import check_seconds
from tidelog.client.consumer.errors import ConsumerTimeoutError

_FOR_EVER_S = 3600.0 * 24 * 365
_STEP_S = 0.1


class QuietTime:
    """The waits of one iteration; ``begin`` before each series of polls that ends with records."""

    def __init__(
        self,
        timeout_s: float | None,
        *,
        assigned_at: Callable[[], float | None],
        reason: Callable[[], str | None],
        blocked_limit_s: float,
        rebalance_limit_s: float,
    ) -> None:
        """``assigned_at`` is the monotonic time of the first assignment, None before it."""
        if timeout_s is not None:
            check_seconds("records", timeout_s)
        self._timeout_s = timeout_s
        self._assigned_at = assigned_at
        self._reason = reason
        self._blocked_limit_s = blocked_limit_s
        self._rebalance_limit_s = max(blocked_limit_s, rebalance_limit_s)
        self._began = time.monotonic()

    def begin(self) -> None:
        """The application asks for more records."""
        self._began = time.monotonic()

    def wait_s(self) -> float:
        """For how long the next poll may wait."""
        if self._timeout_s is None:
            return _FOR_EVER_S
        assigned_at = self._assigned_at()
        if assigned_at is None:
            return max(self._timeout_s, _STEP_S)
        return max(max(self._began, assigned_at) + self._timeout_s - time.monotonic(), 0.0)

    def is_over(self) -> bool:
        """Whether the iteration ends, after a poll without records; raises where no assignment has come."""
        if self._timeout_s is None:
            return False
        if self._assigned_at() is not None:
            return self.wait_s() <= 0
        waited_s = time.monotonic() - self._began
        reason = self._reason()
        limit_s = self._rebalance_limit_s if reason is None else self._blocked_limit_s
        if waited_s < max(limit_s, self._timeout_s):
            return False
        why = reason or "the group is still rebalancing; check its members with `tidelog groups describe`"
        raise ConsumerTimeoutError(f"the group assigned no partitions within {waited_s:.3g} s: {why}")

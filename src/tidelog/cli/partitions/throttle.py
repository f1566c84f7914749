"""``tidelog partitions reassign --throttle``: rates as people write them, and what is said of throttles."""

from __future__ import annotations

import re

from tidelog.cli.failure import WrongUsage
from tidelog.cli.output import counted, remark
from tidelog.client.admin import _replication_throttle as replication_throttle
from tidelog.client.admin._reassignment_plan import Assignment
from tidelog.client.admin.async_admin import AsyncAdmin
from tidelog.errors import TidelogError

VERIFY = "run `tidelog partitions reassign --verify` to remove it once the reassignment completes"
_RATE = re.compile(r"(\d+)\s*((?:[kmg]i?)?)b?")
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def parse_rate(text: str) -> int:
    """Bytes a second: a number, perhaps with k, M, G (thousands) or Ki, Mi, Gi (1024s) and B behind it."""
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or not int(found[1]):
        raise WrongUsage(f"invalid --throttle {text!r}: write bytes per second, such as 50MB or 1000000")
    return int(found[1]) * _UNITS[found[2]]


async def set_throttle(
    admin: AsyncAdmin, before: Assignment, planned: Assignment, bytes_per_second: int
) -> bool:
    """Throttle the moves from ``before`` to ``planned``; whether any is. Raises what is refused."""
    is_set = await replication_throttle.set_throttle(admin, before, planned, bytes_per_second)
    if is_set:
        remark(
            f"each broker copies at most {bytes_per_second} bytes per second until the reassignment completes"
        )
    return is_set


async def remove_throttle(admin: AsyncAdmin) -> list[TidelogError]:
    """Take all throttles away, unless something is moving still; returns what could not be done."""
    try:
        done = await replication_throttle.remove_throttle(admin)
    except TidelogError as error:
        remark(f"a throttle may still be set: {VERIFY}")
        return [error]
    if done.moving:
        remark(f"the throttle is still set: {counted(done.moving, 'partition')} still moving ({VERIFY})")
    elif done.errors:
        remark(f"the throttle is still partly set: {VERIFY}")
    elif done.found:
        remark("removed the throttle")
    return list(done.errors)

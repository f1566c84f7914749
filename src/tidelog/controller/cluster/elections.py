"""Who is to lead a partition: the four elections, as pure functions.

Each takes the partition as it is and who is alive, and gives the new leader and in-sync replicas, or None if
nobody can lead. All of them prefer the order of the assignment, whose first replica is the preferred leader.

- *offline*: the leader is gone. The first live in-sync replica; without one, where unclean elections are
  allowed, the first live replica, which then is alone in sync and recovers.
- *reassignment*: the first live in-sync replica among those that are to stay.
- *preferred*: the preferred leader, if it is alive and in sync.
- *controlled shutdown*: the first live in-sync replica that does not shut down; those that do leave the
  in-sync ones.

``state_changes`` writes what comes out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

RECOVERED = 0
RECOVERING = 1


class Elected(NamedTuple):
    """The outcome of an election."""

    leader: int
    isr: tuple[int, ...]
    recovering: bool = False
    """Whether the leader was not in sync, so that acknowledged records may be gone."""


def elect_offline(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], *, allow_unclean: bool
) -> Elected | None:
    """A leader for a partition that has none, or a dead one."""
    leader = _first(replicas, live, isr)
    if leader is not None:
        return Elected(leader, tuple(each for each in isr if each in live))
    if allow_unclean:
        leader = _first(replicas, live)
        if leader is not None:
            return Elected(leader, (leader,), recovering=True)
    return None


def elect_for_reassignment(
    target: Sequence[int], isr: Sequence[int], live: Collection[int]
) -> Elected | None:
    """A leader among the replicas that a reassignment leaves."""
    leader = _first(target, live, isr)
    return None if leader is None else Elected(leader, tuple(isr))


def elect_preferred(replicas: Sequence[int], isr: Sequence[int], live: Collection[int]) -> Elected | None:
    """The first replica of the assignment, if it can lead."""
    leader = _first(replicas[:1], live, isr)
    return None if leader is None else Elected(leader, tuple(isr))


def elect_for_shutdown(
    replicas: Sequence[int], isr: Sequence[int], live: Collection[int], leaving: Collection[int]
) -> Elected | None:
    """Another leader than the brokers that are shutting down; ``live`` may include those."""
    staying = tuple(each for each in isr if each not in leaving)
    leader = _first(replicas, live, staying)
    return None if leader is None else Elected(leader, staying)


def _first(candidates: Sequence[int], *sets: Collection[int]) -> int | None:
    return next((each for each in candidates if all(each in one for one in sets)), None)

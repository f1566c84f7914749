"""The assignors of Kafka's Java client, and the choice between them by ``partition.assignment.strategy``."""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.client.group.assignor import Assignor, RebalanceProtocol
from tidelog.client.group.assignors.cooperative_sticky import CooperativeStickyAssignor
from tidelog.client.group.assignors.range import RangeAssignor
from tidelog.client.group.assignors.round_robin import RoundRobinAssignor
from tidelog.client.group.assignors.sticky import StickyAssignor
from tidelog.errors import ConfigError

__all__ = [
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RoundRobinAssignor",
    "StickyAssignor",
    "assignors_from",
    "common_protocol",
]

_KNOWN: dict[str, type[Assignor]] = {
    each.name: each for each in (RangeAssignor, RoundRobinAssignor, StickyAssignor, CooperativeStickyAssignor)
}
_JAVA_PACKAGE = "org.apache.kafka.clients.consumer."
_JAVA_NAMES = {f"{_JAVA_PACKAGE}{each.__name__}": each for each in _KNOWN.values()}


def assignors_from(strategies: Iterable[object]) -> list[Assignor]:
    """The assignors that ``partition.assignment.strategy`` names: by name, by class, or ready made."""
    found = [_assignor(each) for each in strategies]
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"partition.assignment.strategy names {name} twice: leave one out")
    if found:
        common_protocol(found)
    return found


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The best way to rebalance that all of them support."""
    assignors = list(assignors)
    common = set(assignors[0].protocols).intersection(*(each.protocols for each in assignors))
    if not common:
        names = ", ".join(each.name for each in assignors)
        raise ConfigError(
            f"partition.assignment.strategy={names}: these have no rebalance protocol in common; "
            "use only such as are all eager, or all cooperative"
        )
    return max(common)


def _assignor(strategy: object) -> Assignor:
    if isinstance(strategy, str):
        known = _KNOWN.get(strategy) or _JAVA_NAMES.get(strategy)
        if known is None:
            raise ConfigError(
                f"partition.assignment.strategy={strategy} is not known: use {', '.join(_KNOWN)}, or an "
                "object of a subclass of Assignor"
            )
        return known()
    if isinstance(strategy, type) and issubclass(strategy, Assignor):
        return strategy()
    if isinstance(strategy, Assignor):
        return strategy
    raise ConfigError(
        f"partition.assignment.strategy cannot take {strategy!r}: give a name or a subclass of Assignor"
    )

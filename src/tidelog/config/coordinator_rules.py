"""Rules that span options of the coordinators, with Kafka's wording; ``broker_rules`` applies them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

ASSIGNORS = ("uniform", "range")
LARGEST_CODEC = 4


def coordinator_rules(values: Mapping[str, object]) -> Iterator[str]:
    """A sentence for every rule that these typed values break."""
    for subject in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        yield from _within_bounds(values, subject)
    heartbeat, session = "group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"
    if _number(values, heartbeat) >= _number(values, session):
        yield f"{heartbeat} must be less than {session}"
    protocols = values["group.coordinator.rebalance.protocols"]
    assert isinstance(protocols, tuple)
    if "classic" not in protocols:
        yield (
            "Disabling the 'classic' protocol is not supported: add it to "
            "group.coordinator.rebalance.protocols"
        )
    assignors = values["group.consumer.assignors"]
    assert isinstance(assignors, tuple)
    for assignor in assignors:
        if assignor not in ASSIGNORS:
            yield (
                f"group.consumer.assignors names {assignor}, which cannot be found: "
                f"the assignors are {' and '.join(ASSIGNORS)}"
            )
    codec = _number(values, "offsets.topic.compression.codec")
    if not 0 <= codec <= LARGEST_CODEC:
        yield (
            f"offsets.topic.compression.codec: Unknown compression type id: {codec}; "
            f"ids run from 0 to {LARGEST_CODEC}"
        )


def _within_bounds(values: Mapping[str, object], subject: str) -> Iterator[str]:
    name, low, high = (f"group.consumer.{bound}{subject}" for bound in ("", "min.", "max."))
    if _number(values, high) < _number(values, low):
        yield f"{high} must be greater than or equal to {low}"
    if _number(values, name) < _number(values, low):
        yield f"{name} must be greater than or equal to {low}"
    if _number(values, name) > _number(values, high):
        yield f"{name} must be less than or equal to {high}"


def _number(values: Mapping[str, object], name: str) -> int:
    value = values[name]
    assert isinstance(value, int)
    return value

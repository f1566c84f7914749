"""The table of every option that a single group may have, with Kafka 4's names, types, defaults and bounds.

Those of consumer groups are in force, within the bounds that the broker sets (``group_configs``). Those of
share and streams groups are taken, checked and kept, so that a cluster's configuration can be brought over;
there are no such groups here for them to act on.
"""

from __future__ import annotations

import re

from tidelog.options import ConfigDef, Option, at_least, grouped, matching, one_of, option

_NO_EFFECT = "No effect: this broker has no {} groups."
_DURATION = re.compile(r"by_duration:P(?!$)(\d+D)?(T(?!$)(\d+H)?(\d+M)?(\d+(\.\d+)?S)?)?", re.IGNORECASE)

CONSUMER_OPTIONS: tuple[Option, ...] = (
    option(
        "consumer.heartbeat.interval.ms",
        "int",
        5000,
        "How often the members of the group are told to heartbeat.",
        at_least(1),
    ),
    option(
        "consumer.session.timeout.ms",
        "int",
        45000,
        "A member of the group that is silent for this long is taken for dead.",
        at_least(1),
    ),
    option(
        "consumer.assignment.interval.ms",
        "int",
        1000,
        "The least time between two assignments that the group computes.",
        at_least(0),
    ),
)


def _share(name: str, default: int, low: int) -> Option:
    return option(f"share.{name}", "int", default, _NO_EFFECT.format("share"), at_least(low))


def _streams(name: str, default: int, low: int) -> Option:
    return option(f"streams.{name}", "int", default, _NO_EFFECT.format("streams"), at_least(low))


OTHER_OPTIONS: tuple[Option, ...] = (
    _share("session.timeout.ms", 45000, 1),
    _share("heartbeat.interval.ms", 5000, 1),
    _share("record.lock.duration.ms", 30000, 1000),
    _share("delivery.count.limit", 5, 2),
    _share("partition.max.record.locks", 2000, 100),
    option(
        "share.auto.offset.reset",
        "string",
        "latest",
        _NO_EFFECT.format("share"),
        matching(
            "earliest, latest or by_duration:<ISO 8601 duration>",
            "Must be 'earliest', 'latest' or of the format 'by_duration:PnDTnHnMn.nS'",
            lambda text: text in ("earliest", "latest") or _DURATION.fullmatch(text) is not None,
        ),
    ),
    option(
        "share.isolation.level",
        "string",
        "read_uncommitted",
        _NO_EFFECT.format("share"),
        one_of("read_committed", "read_uncommitted"),
    ),
    option("share.renew.acknowledge.enable", "boolean", True, _NO_EFFECT.format("share")),
    _share("assignment.interval.ms", 1000, 0),
    _streams("session.timeout.ms", 45000, 1),
    _streams("heartbeat.interval.ms", 5000, 1),
    _streams("num.standby.replicas", 0, 0),
    _streams("initial.rebalance.delay.ms", 3000, 0),
    _streams("assignment.interval.ms", 1000, 0),
)

GROUP_OPTIONS = ConfigDef(grouped({"Consumer groups": CONSUMER_OPTIONS, "Other groups": OTHER_OPTIONS}))


def broker_synonym(name: str) -> str:
    """The broker option that holds where a group does not say; not all of them are honoured."""
    return f"group.{name}"

"""Finalized feature levels: what the cluster has agreed to use, of what its brokers can do.

``SUPPORTED_FEATURES`` is what this release can do, ``NEW_CLUSTER_FEATURES`` what a new cluster begins with;
UpdateFeatures changes it. Level 0 means "off" and is never stored.

* ``group.version`` 1: the consumer group protocol (KIP-848) is served.
* ``transaction.version`` 1: flexible fields in ``__transaction_state``; 2: an epoch for each transaction,
  and partitions join it by being written to (KIP-890). A client that finds 2 in ApiVersions speaks Produce
  12, EndTxn 5 and TxnOffsetCommit 5 and sends AddPartitionsToTxn no more.

Pure functions; the controller stores the outcome in ``/feature``, whose version is the epoch clients see.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidelog.errors import ErrorCode, KafkaError


class FeatureRange(NamedTuple):
    """The levels of one feature that a broker can do."""

    min: int
    max: int

    def __str__(self) -> str:
        return str(self.min) if self.min == self.max else f"{self.min}-{self.max}"


class UpgradeType(enum.IntEnum):
    """What a client allows an update to do."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """One requested level; ``upgrade_type`` is the raw code of the request, which may be no known one."""

    name: str
    level: int
    upgrade_type: int = UpgradeType.UPGRADE


GROUP_VERSION = "group.version"
TRANSACTION_VERSION = "transaction.version"

SUPPORTED_FEATURES: Mapping[str, FeatureRange] = {
    GROUP_VERSION: FeatureRange(0, 1),
    TRANSACTION_VERSION: FeatureRange(0, 2),
}

NEW_CLUSTER_FEATURES: Mapping[str, int] = {GROUP_VERSION: 1, TRANSACTION_VERSION: 2}

_NOT_SUPPORTED = FeatureRange(0, 0)


def first_features(found: Mapping[str, int]) -> dict[str, int]:
    """The levels of a cluster that has finalized none here, given those that Kafka left in its metadata.

    A cluster whose metadata speaks of any of these features keeps its levels, as far as they can be done;
    one that knows of none of them begins like a new one.
    """
    known = {
        name: min(found[name], levels.max) for name, levels in SUPPORTED_FEATURES.items() if name in found
    }
    return {name: level for name, level in (known or NEW_CLUSTER_FEATURES).items() if level > 0}


def plan_feature_updates(
    finalized: Mapping[str, int],
    supported: Mapping[str, FeatureRange],
    updates: Sequence[FeatureUpdate],
    broker_id: int,
    brokers: Mapping[int, Mapping[str, FeatureRange]] | None = None,
) -> dict[str, int]:
    """The finalized levels after ``updates``; one bad update refuses all of them (INVALID_UPDATE_VERSION).

    ``brokers`` are those of the cluster, with what they can do: one that cannot do what is finalized would
    not start again, and an Apache Kafka 3.9 broker, which knows no features, would even end at once.
    """
    planned = dict(finalized)
    for update in updates:
        reason = _reason_refused(update, finalized.get(update.name, 0), supported, broker_id)
        reason = reason or _reason_brokers_cannot(update, brokers or {})
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid update version {update.level} for feature {update.name}. {reason}",
            )
        planned[update.name] = update.level
    return {name: level for name, level in planned.items() if level > 0}


def _reason_refused(
    update: FeatureUpdate, current: int, supported: Mapping[str, FeatureRange], broker_id: int
) -> str | None:
    if update.upgrade_type not in UpgradeType.__members__.values():
        return "The controller does not support the given upgrade type."
    if update.level < 0:
        return "A feature version cannot be less than 0."
    if update.level == 0 and update.name not in supported:
        return f"Feature {update.name} not found."
    levels = supported.get(update.name, _NOT_SUPPORTED)
    if update.level != 0 and not levels.min <= update.level <= levels.max:
        if levels.max == 0:
            return f"Local controller {broker_id} does not support this feature."
        return f"Local controller {broker_id} only supports versions {levels}"
    if update.level < current and update.upgrade_type == UpgradeType.UPGRADE:
        return (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or "
            "unsafe downgrade."
        )
    if update.level > current and update.upgrade_type != UpgradeType.UPGRADE:
        return "Can't downgrade to a newer version."
    return None


def _reason_brokers_cannot(
    update: FeatureUpdate, brokers: Mapping[int, Mapping[str, FeatureRange]]
) -> str | None:
    if update.level == 0:
        return None
    for broker_id, supported in sorted(brokers.items()):
        levels = supported.get(update.name, _NOT_SUPPORTED)
        if levels.max == 0:
            return f"Broker {broker_id} does not support this feature."
        if not levels.min <= update.level <= levels.max:
            return f"Broker {broker_id} only supports versions {levels}"
    return None

from __future__ import annotations

import pytest

from tidelog.controller.features import (
    SUPPORTED_FEATURES,
    FeatureRange,
    FeatureUpdate,
    UpgradeType,
    first_features,
    plan_feature_updates,
)
from tidelog.errors import ErrorCode, KafkaError

SUPPORTED = SUPPORTED_FEATURES


@pytest.mark.parametrize(
    ("found", "levels"),
    [
        ({}, {"group.version": 1, "transaction.version": 2}),
        ({"metadata.version": 21}, {"group.version": 1, "transaction.version": 2}),
        ({"group.version": 1, "transaction.version": 1}, {"group.version": 1, "transaction.version": 1}),
        ({"transaction.version": 2, "group.version": 0}, {"transaction.version": 2}),
        ({"group.version": 1}, {"group.version": 1}),
        ({"group.version": 9, "transaction.version": 9}, {"group.version": 1, "transaction.version": 2}),
    ],
)
def test_a_first_start_keeps_levels_that_kafka_left_and_is_a_new_cluster_otherwise(
    found: dict[str, int], levels: dict[str, int]
) -> None:
    assert first_features(found) == levels


def test_updates_raise_lower_and_remove_levels_together() -> None:
    planned = plan_feature_updates(
        {"group.version": 1},
        SUPPORTED,
        [
            FeatureUpdate("transaction.version", 2),
            FeatureUpdate("group.version", 0, UpgradeType.SAFE_DOWNGRADE),
        ],
        broker_id=1,
    )
    assert planned == {"transaction.version": 2}


@pytest.mark.parametrize(
    ("update", "message"),
    [
        (
            FeatureUpdate("no.such", 1),
            "Invalid update version 1 for feature no.such. Local controller 1 does not support this feature.",
        ),
        (
            FeatureUpdate("no.such", 0, UpgradeType.SAFE_DOWNGRADE),
            "Invalid update version 0 for feature no.such. Feature no.such not found.",
        ),
        (
            FeatureUpdate("transaction.version", 3),
            "Invalid update version 3 for feature transaction.version. "
            "Local controller 1 only supports versions 0-2",
        ),
        (
            FeatureUpdate("transaction.version", -1),
            "Invalid update version -1 for feature transaction.version. "
            "A feature version cannot be less than 0.",
        ),
        (
            FeatureUpdate("group.version", 0),
            "Invalid update version 0 for feature group.version. Can't downgrade the version of this feature "
            "without setting the upgrade type to either safe or unsafe downgrade.",
        ),
        (
            FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE),
            "Invalid update version 1 for feature transaction.version. Can't downgrade to a newer version.",
        ),
        (
            FeatureUpdate("group.version", 1, 9),
            "Invalid update version 1 for feature group.version. The controller does not support the given "
            "upgrade type.",
        ),
    ],
)
def test_a_bad_update_refuses_the_whole_request(update: FeatureUpdate, message: str) -> None:
    finalized = {"group.version": 1}
    with pytest.raises(KafkaError) as refused:
        plan_feature_updates(
            finalized, SUPPORTED, [FeatureUpdate("transaction.version", 1), update], broker_id=1
        )
    assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION
    assert refused.value.message == message
    assert finalized == {"group.version": 1}


@pytest.mark.parametrize(
    ("brokers", "reason"),
    [
        ({1: SUPPORTED, 2: {}}, "Broker 2 does not support this feature."),
        (
            {1: SUPPORTED, 3: {"transaction.version": FeatureRange(0, 1)}},
            "Broker 3 only supports versions 0-1",
        ),
    ],
)
def test_a_level_that_a_broker_of_the_cluster_cannot_do_is_refused(
    brokers: dict[int, dict[str, FeatureRange]], reason: str
) -> None:
    update = FeatureUpdate("transaction.version", 2)
    with pytest.raises(KafkaError) as refused:
        plan_feature_updates({}, SUPPORTED, [update], 1, brokers)
    assert refused.value.message == f"Invalid update version 2 for feature transaction.version. {reason}"
    off = FeatureUpdate("transaction.version", 0, UpgradeType.SAFE_DOWNGRADE)
    assert plan_feature_updates({"transaction.version": 2}, SUPPORTED, [off], 1, brokers) == {}

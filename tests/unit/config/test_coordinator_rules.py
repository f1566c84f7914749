"""Options of the coordinators that must agree with one another."""

from __future__ import annotations

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.errors import ConfigError


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (
            {"group.consumer.session.timeout.ms": "10000"},
            "group.consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            {"group.consumer.heartbeat.interval.ms": "15001"},
            "group.consumer.heartbeat.interval.ms must be less than or equal to "
            "group.consumer.max.heartbeat.interval.ms",
        ),
        (
            {"group.consumer.min.session.timeout.ms": "60001", "group.consumer.session.timeout.ms": "60001"},
            "group.consumer.max.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            {"group.consumer.max.assignment.interval.ms": "10"},
            "group.consumer.assignment.interval.ms must be less than or equal to "
            "group.consumer.max.assignment.interval.ms",
        ),
        (
            {
                "group.consumer.max.heartbeat.interval.ms": "45000",
                "group.consumer.heartbeat.interval.ms": "45000",
            },
            "group.consumer.heartbeat.interval.ms must be less than group.consumer.session.timeout.ms",
        ),
        ({"group.coordinator.rebalance.protocols": "consumer"}, "Disabling the 'classic' protocol"),
        ({"group.coordinator.rebalance.protocols": ""}, "must not be empty"),
        ({"group.consumer.assignors": "uniform,org.example.Mine"}, "names org.example.Mine, which cannot be"),
        ({"group.consumer.migration.policy": "sideways"}, "String must be one of (case insensitive)"),
        ({"offsets.topic.compression.codec": "5"}, "Unknown compression type id: 5"),
    ],
)
def test_coordinator_options_that_do_not_go_together_are_refused(raw: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig(raw)
    assert sentence in str(refusal.value)


def test_bounds_may_be_moved_together_with_what_they_bound() -> None:
    config = BrokerConfig(
        {
            "group.consumer.min.session.timeout.ms": "1000",
            "group.consumer.session.timeout.ms": "1000",
            "group.consumer.min.heartbeat.interval.ms": "100",
            "group.consumer.heartbeat.interval.ms": "100",
            "group.consumer.migration.policy": "UpGrade",
            "group.consumer.assignors": "range",
        }
    )
    assert config.int("group.consumer.session.timeout.ms") == 1000
    assert config.list("group.consumer.assignors") == ("range",)

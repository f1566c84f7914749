"""Brokers for groups that cannot wait: short sessions, quick heartbeats, no delay before the first rebalance.

With TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka (tests/compat), which must pass the same tests.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog

GROUP_OPTIONS = {
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "200",
    "offsets.topic.num.partitions": "4",
    "offsets.topic.replication.factor": "1",
}


def group_broker(directory: Path, options: Mapping[str, str] | None = None) -> BrokerProcess:
    """A broker that is not yet started."""
    kind = ApacheKafka if os.environ.get("TIDELOG_TEST_ORACLE") == "1" else Tidelog
    return kind(directory, {**GROUP_OPTIONS, **(options or {})})

"""Brokers for transactions that cannot wait: timed out ones are looked for five times a second.

With TIDELOG_TEST_ORACLE=1 the broker is Apache Kafka (tests/compat), which must pass the same tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from foreign.broker_process import BrokerProcess
from tests.rigs.group_members.brokers import group_broker

TRANSACTION_OPTIONS = {
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "log.cleaner.backoff.ms": "200",
}


def transaction_broker(directory: Path, options: Mapping[str, str] | None = None) -> BrokerProcess:
    """A broker that is not yet started."""
    return group_broker(directory, {**TRANSACTION_OPTIONS, **(options or {})})

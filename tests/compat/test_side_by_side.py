"""The same requests to Tidelog and to Apache Kafka: the answers have to be the same, field by field.

The table of cases is in ``side_by_side``; what is meant to differ is on record in its deviations.py and
explained in docs/reference/deviations.md. With TIDELOG_ORACLE=host:port the suite uses a running
Kafka (a fresh one: a few cases change and restore configs of the broker).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import Tidelog
from tests.compat.side_by_side.cases import Case
from tests.compat.side_by_side.deviations import KNOWN, matches
from tests.compat.side_by_side.side import Side
from tests.compat.side_by_side.table import CASES

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "deviations.md"
OPTIONS = {
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "500",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "group.max.size": "5",
    "group.consumer.max.size": "5",
}


@pytest.fixture(scope="module")
def tidelog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    running = Tidelog(tmp_path_factory.mktemp("tidelog"), OPTIONS)
    running.start()
    yield Side("tidelog", "127.0.0.1", running.port).prepare(coordinators=True)
    running.stop()


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    oracle = os.environ.get("TIDELOG_ORACLE")
    if oracle:
        host, _, port = oracle.rpartition(":")
        yield Side("apache", host, int(port)).prepare(coordinators=True)
        return
    try:
        options = {
            **OPTIONS,
            "log.initial.task.delay.ms": "500",
            # InitProducerId 6 is Kafka's too, but behind a switch until its other half (KIP-939) is done.
            "unstable.api.versions.enable": "true",
            # A machine that stands still for a while elects no leaders anew: epochs are compared.
            "broker.session.timeout.ms": "600000",
        }
        running = ApacheKafka(tmp_path_factory.mktemp("apache"), options)
        running.start()
    except toolchain.Missing as missing:
        pytest.skip(str(missing))
    yield Side("apache", "127.0.0.1", running.port).prepare(coordinators=True)
    running.stop()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_tidelog_answers_as_apache_kafka_does(case: Case, tidelog: Side, apache: Side) -> None:
    prefix = f"case-{CASES.index(case)}"
    theirs = case.run(apache.begin(prefix))
    ours = case.run(tidelog.begin(prefix))
    found = case.judge(ours, theirs)
    shown = "\n".join(
        f"{path}\n  ours   {mine!r}\n  apache {other!r}" for path, (mine, other) in found.items()
    )
    assert not found, f"{case.name}\n{shown}"


def test_every_deviation_is_shown_by_a_case() -> None:
    unused = [pattern for pattern in KNOWN if not any(matches(case.name, pattern) for case in CASES)]
    assert not unused


def test_every_deviation_is_explained() -> None:
    explained = set(re.findall(r"^- \*\*([a-z0-9-]+)\*\*", DOCUMENT.read_text(), re.MULTILINE))
    assert {deviation.name for deviation in KNOWN.values()} <= explained


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)

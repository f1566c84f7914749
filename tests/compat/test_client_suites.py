"""Our clients' behaviour suites, as they stand in tests/integration, against Apache Kafka.

They run against Tidelog in `make test`; what they claim must hold here too. The suites of groups start a
broker with short timeouts of their own (tests/rigs/group_members/brokers.py); test_client_security.py asks
Kafka for TLS and logins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from tests.compat.conftest import available

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600
SUITES = [
    "test_admin.py",
    "test_producer.py",
    "test_consumer.py",
    "test_consumer_commits.py",
    "test_stream_consumer.py",
    "test_cli_records.py",
]
# Of the suites that all clients run the part that is ours.
OURS = ("-k", "tidelog")
GROUP_SUITES = [
    ("test_consumer_groups.py",),
    ("test_consumer_groups_consumer_protocol.py",),
    ("test_consumer_groups_transactions.py",),
    ("test_groups_classic.py", *OURS),
    ("test_groups_consumer_protocol.py", *OURS),
]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("apache"))
        kafka.start()
    yield kafka.address
    kafka.stop()


def run(suite: str, environment: Mapping[str, str], *options: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", f"tests/integration/{suite}", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_holds_against_apache_kafka(suite: str, apache: str) -> None:
    run(suite, {"TIDELOG_TEST_BOOTSTRAP": apache})


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("suite", GROUP_SUITES, ids=lambda suite: suite[0])
def test_the_group_suite_holds_against_apache_kafka(suite: tuple[str, ...]) -> None:
    with available():
        toolchain.java("kafka-4")
    name, *options = suite
    run(name, {"TIDELOG_TEST_ORACLE": "1"}, *options)

"""Our clients' behaviour suites, as they stand in tests/integration, against Apache Kafka.

They run against Tidelog in `make test`; what they claim must hold here too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.apache_kafka import ApacheKafka
from tests.compat.conftest import available

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600
SUITES = ["test_admin.py"]


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with available():
        kafka = ApacheKafka(tmp_path_factory.mktemp("apache"))
        kafka.start()
    yield kafka.address
    kafka.stop()


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("suite", SUITES)
def test_the_suite_holds_against_apache_kafka(suite: str, apache: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--tb=short", f"tests/integration/{suite}"],
        cwd=ROOT,
        env={**os.environ, "TIDELOG_TEST_BOOTSTRAP": apache},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr

"""One broker process per test worker, shared by all tests that do not harm it.

`TIDELOG_TEST_BOOTSTRAP=host:port` points the same tests at another broker (Apache Kafka, say): what they
claim must hold there too.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.integration.spark_session import spark as spark
from tests.rigs.console_browser import browser as browser
from tests.rigs.console_browser import page as page
from tests.rigs.exactly_once.brokers import transaction_broker
from tests.rigs.group_members.brokers import group_broker

from tidelog.testing.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker."""
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    data_dir: Path = tmp_path_factory.mktemp("broker") / "data"
    with BrokerProcess(data_dir) as broker:
        yield broker.bootstrap


@pytest.fixture(scope="session")
def group_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with short group timeouts (tests/rigs/group_members/brokers.py)."""
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    broker = group_broker(tmp_path_factory.mktemp("groups"))
    broker.start()
    yield broker.address
    broker.stop()


@pytest.fixture(scope="session")
def transaction_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker that looks often for transactions past their time."""
    foreign = os.environ.get("TIDELOG_TEST_BOOTSTRAP")
    if foreign:
        yield foreign
        return
    broker = transaction_broker(tmp_path_factory.mktemp("transactions"))
    broker.start()
    yield broker.address
    broker.stop()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes topic names that no other test uses."""
    stem = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return lambda: f"{stem}-{uuid.uuid4().hex[:8]}"

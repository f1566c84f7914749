"""A broker in this process for all tests of a module, a connection to it, and topics of a test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.rigs.raw_client import RawClient
from tests.rigs.raw_topic import RawTopic

from tidelog.testing.broker_thread import BrokerThread


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    with BrokerThread(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def client(broker: BrokerThread) -> Iterator[RawClient]:
    with RawClient(broker.host, broker.port) as connected:
        yield connected


@pytest.fixture
def new_topic(client: RawClient, request: pytest.FixtureRequest) -> Callable[..., RawTopic]:
    """Makes topics that no other test uses."""
    count = 0

    def make(partitions: int = 1, **configs: str) -> RawTopic:
        nonlocal count
        count += 1
        name = "".join(c if c.isalnum() else "-" for c in request.node.name)
        return RawTopic(client, f"{name}-{count}", partitions, **configs)

    return make

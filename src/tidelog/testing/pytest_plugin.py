"""Fixtures for tests that need a broker; pytest finds them by itself where Tidelog is installed.

    def test_orders_arrive(tidelog_broker, tidelog_topic):
        producer = Producer(bootstrap_servers=tidelog_broker.bootstrap_servers)
        producer.send(tidelog_topic, b"one espresso").result(10)

``tidelog_broker``          one broker for the whole run (one per worker under xdist)
``tidelog_topic``           the name of a topic that only this test has;
                            ``@pytest.mark.tidelog_topic(partitions=3, configs={...})`` says how it is made
``tidelog_broker_options``  override it (scope "session") to give the broker options
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator

import pytest

from tidelog.testing.broker import LocalBroker, Options, broker

_MAX_TEST_NAME = 200
_NOT_IN_TOPIC_NAMES = re.compile(r"[^a-zA-Z0-9._-]+")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known to ``--strict-markers``."""
    config.addinivalue_line(
        "markers", "tidelog_topic(partitions=1, configs=None): how the topic of tidelog_topic is made"
    )


@pytest.fixture(scope="session")
def tidelog_broker_options() -> Options:
    """Options of the broker in Kafka's names; meant to be overridden."""
    return {}


@pytest.fixture(scope="session")
def tidelog_broker(tidelog_broker_options: Options) -> Iterator[LocalBroker]:
    """A broker that runs as long as the tests do."""
    with broker(options=tidelog_broker_options) as running:
        yield running


@pytest.fixture
def tidelog_topic(tidelog_broker: LocalBroker, request: pytest.FixtureRequest) -> str:
    """The name of a fresh topic."""
    marker = request.node.get_closest_marker("tidelog_topic")
    how = dict(marker.kwargs) if marker else {}
    test = _NOT_IN_TOPIC_NAMES.sub("-", request.node.name)[:_MAX_TEST_NAME].strip("-")
    return tidelog_broker.create_topic(f"{test}-{uuid.uuid4().hex[:8]}", **how)

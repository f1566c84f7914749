"""One cluster of three brokers per module, for tests that do not harm it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
from tests.cluster.cluster_process import ForegroundCommand, local_cluster
from tests.integration.command_line import CommandLine

# A loaded machine starts a JVM and three brokers in its own time.
CLUSTER_TEST_TIMEOUT_S = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/cluster/" in item.path.as_posix() and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(CLUSTER_TEST_TIMEOUT_S))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForegroundCommand]:
    with local_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def tidelog(cluster: ForegroundCommand) -> CommandLine:
    return CommandLine(cluster.value("bootstrap.servers"))


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes topic names that no other test uses."""
    stem = "".join(c if c.isalnum() else "-" for c in request.node.name)[:80]
    return lambda: f"{stem}-{uuid.uuid4().hex[:8]}"

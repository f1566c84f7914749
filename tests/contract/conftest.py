"""A real ZooKeeper for the contract of shared stores; each test works below a node of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tidelog.processes.zookeeper import ZooKeeperEnsemble

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper_connect(request: pytest.FixtureRequest) -> Callable[[], str]:
    """Where a test's stores connect to; the server is started when that is first asked for."""
    chroot = f"/test-{next(_numbers)}"
    return lambda: request.getfixturevalue("zookeeper").connect + chroot

"""Fixtures of the compatibility suite: brokers under test, foreign clients, Kafka's tools.

Every test runs against Tidelog. With TIDELOG_COMPAT_ORACLE=1 it runs against Apache Kafka too, which tells
whether a failing test or the broker is wrong.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from foreign import toolchain
from foreign.apache_kafka import ApacheKafka
from foreign.broker_process import BrokerProcess, Tidelog
from tests.compat.clients import CLIENTS
from tests.compat.driver import Client, Driver

BROKERS = ["tidelog", *(["apache"] if os.environ.get("TIDELOG_COMPAT_ORACLE") == "1" else [])]

BROKER_OPTIONS = {
    "auto.create.topics.enable": "true",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "1000",
}

Tool = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session", params=BROKERS)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    directory = tmp_path_factory.mktemp(request.param)
    kind = {"tidelog": Tidelog, "apache": ApacheKafka}[request.param]
    with available():
        running = kind(directory, BROKER_OPTIONS)
        running.start()
    yield running
    running.stop()


class available:
    """Turns a missing toolchain into a skip that says what is missing."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, failure: object, trace: object) -> None:
        if isinstance(failure, toolchain.Missing):
            pytest.skip(str(failure))


@pytest.fixture(scope="session", params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture(scope="session")
def drivers(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Client], Driver]]:
    """Starts each client's driver once per broker."""
    running: dict[str, Driver] = {}
    logs = tmp_path_factory.mktemp("drivers")

    def start(client: Client) -> Driver:
        if client.name not in running or not running[client.name].alive:
            with available():
                running[client.name] = Driver(client, broker.address, logs / f"{client.name}.log")
        return running[client.name]

    yield start
    for driver in running.values():
        driver.close()


@pytest.fixture
def driver(request: pytest.FixtureRequest, client: Client, drivers: Callable[[Client], Driver]) -> Driver:
    """The client's driver; a test marked `needs(feature)` is skipped where the client has no such thing."""
    for mark in request.node.iter_markers("needs"):
        for feature in mark.args:
            if feature in client.lacks:
                pytest.skip(f"{client.name}: {client.lacks[feature]}")
    return drivers(client)


_numbers = itertools.count(1)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test uses."""
    stem = "".join(c if c.isalnum() else "-" for c in request.node.originalname.removeprefix("test_"))
    return f"{stem[:60]}-{next(_numbers)}"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(feature, ...): what a client must offer for this test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The first test that needs a toolchain also waits for it to be fetched."""
    if config.pluginmanager.hasplugin("timeout"):
        for item in items:
            if item.path.is_relative_to(toolchain.HERE):
                item.add_marker(pytest.mark.timeout(toolchain.FETCH_TIMEOUT_S))


@pytest.fixture(scope="session", params=["kafka-4", "kafka-3.9"])
def kafka_tool(request: pytest.FixtureRequest) -> Tool:
    """Runs a main class of Apache Kafka's tools, of either generation."""
    with available():
        command = toolchain.java(request.param, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

    def run(
        main: str, *arguments: str | Path, stdin: str = "", timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        name = renamed_in_3_9(main) if request.param == "kafka-3.9" else main
        return subprocess.run(
            [*command, name, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


def renamed_in_3_9(main: str) -> str:
    """Some tools moved to Java, and to another package, in 4.0."""
    moved = {
        "org.apache.kafka.tools.DumpLogSegments": "kafka.tools.DumpLogSegments",
        "org.apache.kafka.tools.ConsoleProducer": "kafka.tools.ConsoleProducer",
        "org.apache.kafka.tools.BrokerApiVersionsCommand": "kafka.admin.BrokerApiVersionsCommand",
        "org.apache.kafka.tools.AclCommand": "kafka.admin.AclCommand",
    }
    return moved.get(main, main)

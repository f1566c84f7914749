"""What keeps a client from its brokers is logged once, repeated seldom, and shown by the client."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.consumer_faces import FACES, create_topic, end, produce, read, tp
from tests.integration.sasl_setup import closed_broker
from tests.rigs.tls_files import TlsFiles
from tests.rigs.waiting import wait_until

from tidelog.client import Admin, Producer
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError
from tidelog.testing import broker
from tidelog.testing.broker_process import BrokerProcess

QUICK: dict[str, Any] = {"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 10, "retry_backoff_ms": 1}
LOGIN: dict[str, Any] = {
    "security_protocol": "SASL_PLAINTEXT",
    "sasl_mechanism": "PLAIN",
    "sasl_username": "alice",
    "sasl_password": "wrong",
}
AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
Open = Callable[..., Any]


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """A port that refuses connections, and that no other process gets meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield held.getsockname()[1]


@pytest.fixture(params=FACES)
def consumer_of(request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Any] = []

    def open_one(bootstrap: str, **options: object) -> Any:
        options = {**QUICK, "group_id": "g", "auto_offset_reset": "earliest", **options}
        consumer = FACES[request.param](bootstrap_servers=bootstrap, **options)
        opened.append(consumer)
        return consumer

    yield open_one
    for consumer in opened:
        consumer.close(0.1)  # where its broker is gone, there is nothing to wait for
        end(consumer)


@pytest.fixture(params=["group", "assign"])
def reading(request: pytest.FixtureRequest, consumer_of: Open) -> Open:
    """Makes a consumer that reads topic ``t`` as a member of a group, or by hand."""

    def open_reading(bootstrap: str, **options: object) -> Any:
        consumer = consumer_of(bootstrap, **options)
        consumer.subscribe(["t"]) if request.param == "group" else consumer.assign([tp("t")])
        return consumer

    return open_reading


def warnings(caplog: pytest.LogCaptureFixture, about: str) -> list[str]:
    found = [each for each in caplog.records if each.name.startswith("tidelog.client")]
    return [
        each.getMessage() for each in found if each.levelno >= logging.WARNING and about in each.getMessage()
    ]


def polled_until(consumer: Any, condition: Callable[[], object], what: str) -> None:
    def polled() -> object:
        consumer.poll(0.01)
        return condition()

    wait_until(polled, what)


def test_a_consumer_without_a_broker_says_so_and_blames_no_partition(
    reading: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with closed_port() as port:
        refused = f"cannot connect to 127.0.0.1:{port}: connection refused"
        consumer = reading(f"127.0.0.1:{port}")
        polled_until(consumer, lambda: (consumer.ongoing_error() or (0.0, ""))[0] > 0.5, "an ongoing error")
        assert consumer.ongoing_error()[1].startswith(refused)
        # Far more than one attempt was made by now.
        assert len(warnings(caplog, refused)) == 1
        assert not warnings(caplog, "t-0")
        health = consumer.health(patience=0.0)
        assert not health.ok
        assert refused in health.reason


def test_a_consumer_reports_that_its_broker_is_gone_and_that_it_is_back(
    reading: Open, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.INFO, logger="tidelog.client")
    with BrokerProcess(tmp_path / "data", options=AT_ONCE) as running:
        create_topic(running.bootstrap, "t")
        produce(running.bootstrap, "t", [b"1"])
        consumer = reading(running.bootstrap)
        read(consumer, 1)
        assert consumer.ongoing_error() is None
        running.kill()
        refused = f"cannot connect to {running.bootstrap}: connection refused"
        polled_until(consumer, lambda: consumer.ongoing_error() and warnings(caplog, refused), "a warning")
        running.restart()
        polled_until(consumer, lambda: consumer.ongoing_error() is None, "no ongoing error")
        infos = [each.getMessage() for each in caplog.records if each.levelno == logging.INFO]
        assert any(each.startswith(f"connected to {running.bootstrap} after ") for each in infos)


def test_one_bad_bootstrap_server_is_a_single_line_and_no_ongoing_error(
    reading: Open, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with BrokerProcess(tmp_path / "data", options=AT_ONCE) as running, closed_port() as port:
        create_topic(running.bootstrap, "t")
        produce(running.bootstrap, "t", [b"1"])
        consumer = reading(f"127.0.0.1:{port},{running.bootstrap}")
        assert [each.value for each in read(consumer, 1)] == [b"1"]
        assert len(warnings(caplog, f"cannot connect to 127.0.0.1:{port}")) == 1
        assert consumer.ongoing_error() is None


def test_producers_and_admin_clients_report_it_too(caplog: pytest.LogCaptureFixture) -> None:
    with closed_port() as port:
        refused = f"cannot connect to 127.0.0.1:{port}: connection refused"
        with Producer(bootstrap_servers=f"127.0.0.1:{port}", **QUICK) as producer:
            wait_until(producer.ongoing_error, "an ongoing error")
            ongoing = producer.ongoing_error()
            assert ongoing is not None
            assert ongoing[1].startswith(refused)
            assert len(warnings(caplog, refused)) == 1
        caplog.clear()
        limits: dict[str, Any] = {"default_api_timeout_ms": 300, "request_timeout_ms": 300}
        with Admin(bootstrap_servers=f"127.0.0.1:{port}", **limits, **QUICK) as admin:
            with pytest.raises(BrokerUnreachableError, match=re.escape(refused)):
                admin.list_topics()
            assert len(warnings(caplog, refused)) == 1


def test_a_program_that_configures_no_logging_sees_the_warning(tmp_path: Path) -> None:
    with closed_port() as port:
        program = (
            "from tidelog import Consumer\n"
            f"with Consumer(bootstrap_servers='127.0.0.1:{port}', group_id='g') as consumer:\n"
            "    consumer.subscribe('t')\n"
            "    while consumer.ongoing_error() is None:\n"
            "        consumer.poll(0.05)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0
        assert done.stderr == (
            f"cannot connect to 127.0.0.1:{port}: connection refused; is the broker running? "
            "try `tidelog start`\n"
        )


@pytest.fixture(scope="module")
def plain_broker() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap_servers


def test_an_unknown_topic_is_named(
    reading: Open, plain_broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = reading(plain_broker, allow_auto_create_topics=False)
    polled_until(consumer, lambda: warnings(caplog, "topic 't' does not exist"), "a warning")
    assert "topic 't' does not exist; create it, or check the name" in consumer.ongoing_error()[1]
    assert len(warnings(caplog, "")) == 1


def test_an_unknown_partition_of_a_known_topic_is_named(
    consumer_of: Open, plain_broker: str, topic_name: Callable[[], str]
) -> None:
    topic = topic_name()
    create_topic(plain_broker, topic, 3)
    consumer = consumer_of(plain_broker)
    consumer.assign([tp(topic, 7)])
    polled_until(consumer, consumer.ongoing_error, "an ongoing error")
    assert f"topic {topic!r} has no partition 7" in consumer.ongoing_error()[1]


@pytest.fixture(scope="module")
def login_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with closed_broker(tmp_path_factory.mktemp("login") / "data") as running:
        yield running.bootstrap


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LOGIN, r"refused the login by PLAIN: .*; check sasl\.username and sasl\.password"),
        ({}, r"requires a login: set security\.protocol=SASL_PLAINTEXT"),
    ],
    ids=["wrong password", "no login"],
)
def test_a_login_that_fails_is_raised_and_logged(
    reading: Open,
    login_broker: str,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    words: str,
) -> None:
    consumer = reading(login_broker, **options)
    for _ in range(2):  # as long as it lasts, and not once only
        with pytest.raises(AuthenticationError, match=words):
            polled_until(consumer, lambda: False, "an error")
    assert len([each for each in warnings(caplog, "login") if re.search(words, each)]) == 1
    assert re.search(words, consumer.ongoing_error()[1])


def test_tls_to_a_listener_without_it_is_named_with_the_remedy(
    reading: Open, plain_broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = reading(plain_broker, security_protocol="SSL")
    polled_until(consumer, consumer.ongoing_error, "an ongoing error")
    assert "not a TLS listener, set security.protocol=PLAINTEXT" in consumer.ongoing_error()[1]
    assert len(warnings(caplog, f"cannot connect to {plain_broker}")) == 1


def test_a_tls_listener_is_named_to_clients_without_tls_and_with_another_authority(
    consumer_of: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = TlsFiles(tmp_path)
    options = {
        "listeners": "SSL://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": str(files.server),
    }
    with BrokerProcess(tmp_path / "data", options=options) as running:
        plain = consumer_of(running.bootstrap)
        plain.assign([tp("t")])
        polled_until(plain, plain.ongoing_error, "an ongoing error")
        assert "security.protocol" in plain.ongoing_error()[1]
        assert len(warnings(caplog, f"cannot connect to {running.bootstrap}")) == 1
        caplog.clear()
        mistrusting = consumer_of(running.bootstrap, security_protocol="SSL")
        mistrusting.assign([tp("t")])
        with pytest.raises(AuthenticationError, match=r"not trusted .* set ssl\.truststore\.location"):
            polled_until(mistrusting, lambda: False, "an error")
        assert len(warnings(caplog, "not trusted")) == 1

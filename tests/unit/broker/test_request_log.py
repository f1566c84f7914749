from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.broker import log_levels
from tidelog.broker.request_log import REQUEST_LOGGER, RequestLog
from tidelog.security.session import Session
from tidelog.wire.api import ApiKey
from tidelog.wire.headers import RequestHeader, encode_request
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest

HEARTBEAT = int(ApiKey.HEARTBEAT)


class Peer:
    closed = False
    is_follower = False
    listener = "PLAINTEXT"
    peer = ("10.0.0.7", 1234)
    client_software = ("librdkafka", "2.8.0")

    def __init__(self) -> None:
        self.session = Session("10.0.0.7")


def frame(message: Any, version: int = 2) -> memoryview:
    header = RequestHeader(message.API_KEY, version, 7, "me")
    return memoryview(encode_request(header, message))[4:]


@pytest.fixture
def debug() -> Iterator[None]:
    log_levels.declare_request_logger()
    log_levels.set_level(log_levels.REQUEST_LOGGER, "DEBUG")
    yield
    log_levels.unset_level(log_levels.REQUEST_LOGGER)


def told(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [
        json.loads(record.getMessage().removeprefix("Completed request:"))
        for record in caplog.records
        if record.name == REQUEST_LOGGER.name
    ]


@pytest.mark.usefixtures("debug")
def test_a_request_is_told_as_kafka_tells_it(caplog: pytest.LogCaptureFixture) -> None:
    now = time.monotonic()
    log = RequestLog(None, -1)
    log.answered(Peer(), [frame(HeartbeatRequest(group_id="g"))], 1, None, now - 0.02, now - 0.01, now)  # type: ignore[arg-type]
    (line,) = told(caplog)
    assert line["requestHeader"] == {
        "requestApiKey": HEARTBEAT,
        "requestApiVersion": 2,
        "correlationId": 7,
        "clientId": "me",
        "requestApiKeyName": "HEARTBEAT",
    }
    assert line["request"]["groupId"] == "g"
    assert line["requestQueueTimeMs"] == pytest.approx(10, abs=0.1)
    assert line["localTimeMs"] == pytest.approx(10, abs=0.1)
    assert line["principal"] == "User:ANONYMOUS"
    assert line["clientInformation"] == {"softwareName": "librdkafka", "softwareVersion": "2.8.0"}


@pytest.mark.usefixtures("debug")
@pytest.mark.parametrize("answered_first", [True, False])
def test_a_request_that_waits_is_told_when_it_is_answered(
    caplog: pytest.LogCaptureFixture, answered_first: bool
) -> None:
    peer: Any = Peer()
    now = time.monotonic()
    log = RequestLog(None, -1)
    log.throttled(peer, HEARTBEAT, 40.0)
    if answered_first:
        log.waited(peer, HEARTBEAT, now - 1, now - 1, now - 1, now, now)
    log.answered(peer, [frame(HeartbeatRequest())], 1, [HEARTBEAT], now - 1, now - 1, now - 1)
    if not answered_first:
        assert not told(caplog)
        log.waited(peer, HEARTBEAT, now - 1, now - 1, now - 1, now, now)
    (line,) = told(caplog)
    assert line["remoteTimeMs"] == pytest.approx(1000, abs=1)
    assert line["throttleTimeMs"] == 40.0


@pytest.mark.usefixtures("debug")
def test_secrets_and_what_is_no_request_are_not_told(caplog: pytest.LogCaptureFixture) -> None:
    now = time.monotonic()
    frames = [
        frame(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"), 1),
        memoryview(b"\0alice\0secret"),
        memoryview(b""),
    ]
    RequestLog(None, -1).answered(Peer(), frames, 3, None, now, now, now)  # type: ignore[arg-type]
    (line,) = told(caplog)
    assert "request" not in line
    assert "secret" not in caplog.text


def test_only_slow_requests_are_told_of_unless_somebody_wants_all(caplog: pytest.LogCaptureFixture) -> None:
    peer: Any = Peer()
    now = time.monotonic()
    log = RequestLog(None, 100)
    log.answered(peer, [frame(HeartbeatRequest())], 1, None, now, now, now)
    assert not caplog.records
    log.answered(peer, [frame(HeartbeatRequest())], 1, None, now - 0.5, now - 0.5, now)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "Slow request: Heartbeat version 2 of client 'me', User:ANONYMOUS" in record.getMessage()
    assert record.__dict__["fields"]["localTimeMs"] == pytest.approx(500, abs=1)


def test_a_broker_that_is_slow_altogether_does_not_fill_its_log(caplog: pytest.LogCaptureFixture) -> None:
    now = time.monotonic()
    log = RequestLog(None, 0)
    frames = [frame(HeartbeatRequest())] * 1000
    log.answered(Peer(), frames, 1000, None, now - 1, now - 1, now)  # type: ignore[arg-type]
    assert len(caplog.records) <= 60

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.broker import log_levels
from tidelog.broker.exchange.request_log import REQUEST_LOGGER, RequestLog
from tidelog.broker.network.answer import NO_ANSWER, PromisedAnswer, StagedAnswer
from tidelog.errors import TidelogError
from tidelog.scheduling.promise import Promise
from tidelog.security.session import Session
from tidelog.wire.api import ApiKey
from tidelog.wire.fetch import FileRange
from tidelog.wire.headers import RequestHeader, encode_request, encode_response
from tidelog.wire.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tidelog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
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


def answered(log: RequestLog, peer: Any, request: Any, outcome: Any, version: int = 2) -> None:
    """A request whose handler comes to ``outcome``, and which is answered in the same wake-up."""
    now = time.monotonic()
    found = log.answers.around(lambda connection, frame: outcome)(peer, frame(request, version))
    if isinstance(found, StagedAnswer):
        assert found.refused is False
        found.settle()
    log.answered(peer, [frame(request, version)], 1, None, now, now, now)


def response(message: Any, version: int = 2) -> bytes:
    return encode_response(message.API_KEY, version, 7, message)


class Staged(StagedAnswer):
    def __init__(self, answer: bytes) -> None:
        self.refused = False
        self.answer = answer

    def settle(self) -> bytes:
        return self.answer


@pytest.mark.usefixtures("debug")
def test_the_response_is_in_the_line_however_it_came_about(caplog: pytest.LogCaptureFixture) -> None:
    peer: Any = Peer()
    log = RequestLog(None, -1)
    encoded = response(HeartbeatResponse(error_code=27))
    promise: PromisedAnswer = Promise()
    for outcome in (encoded, [encoded[:6], encoded[6:]], Staged(encoded), Promise.of(encoded)):
        answered(log, peer, HeartbeatRequest(group_id="g"), outcome)
    log.answers.around(lambda connection, frame: promise)(peer, frame(HeartbeatRequest()))
    promise.resolve(encoded)
    now = time.monotonic()
    log.answered(peer, [frame(HeartbeatRequest())], 1, None, now, now, now)
    assert [line["response"] for line in told(caplog)] == [{"throttleTimeMs": 0, "errorCode": 27}] * 5
    others: tuple[Any, ...] = (NO_ANSWER, Promise.failed(TidelogError("closed")), b"\0\0\0\1x")
    for outcome in others:
        answered(log, peer, HeartbeatRequest(), outcome)
    assert [line.get("response") for line in told(caplog)[5:]] == [None, None, {"sizeInBytes": 1}]


@pytest.mark.usefixtures("debug")
def test_records_and_long_responses_are_given_by_their_size(caplog: pytest.LogCaptureFixture) -> None:
    peer: Any = Peer()
    log = RequestLog(None, -1)
    partition = PartitionData(high_watermark=5, records=bytes(100))
    fetched = response(
        FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])]), 11
    )
    in_file = [fetched[:-100], FileRange(fd=-1, position=0, length=100)]
    answered(log, peer, FetchRequest(), in_file, 11)
    answered(log, peer, FetchRequest(), [fetched[:-100], FileRange(fd=-1, position=0, length=1 << 30)], 11)
    short, long = (line["response"] for line in told(caplog))
    (shown,) = short["responses"][0]["partitions"]
    assert (shown["highWatermark"], shown["records"]) == (5, {"sizeInBytes": 100})
    assert long == {"sizeInBytes": len(fetched) - 4 - 100 + (1 << 30)}


@pytest.mark.usefixtures("debug")
def test_secrets_in_responses_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    peer: Any = Peer()
    log = RequestLog(None, -1)
    token = response(CreateDelegationTokenResponse(token_id="t1", hmac=b"s3cret"))
    answered(log, peer, CreateDelegationTokenRequest(), token)
    result = AlterConfigsResourceResponse(error_code=40, error_message="s3cret is wrong", resource_name="1")
    answered(
        log,
        peer,
        IncrementalAlterConfigsRequest(),
        response(IncrementalAlterConfigsResponse(responses=[result]), 1),
        1,
    )
    created, altered = (line["response"] for line in told(caplog))
    assert (created["tokenId"], created["hmac"]) == ("t1", {"sizeInBytes": 6})
    assert altered["responses"][0]["errorMessage"] == "[redacted]"
    assert altered["responses"][0]["errorCode"] == 40
    assert "s3cret" not in caplog.text


def test_answers_of_closed_connections_are_forgotten() -> None:
    log = RequestLog(None, -1)
    peers = [Peer(), Peer()]
    for peer in peers:
        log.answers.around(lambda connection, frame: b"\0\0\0\0")(peer, frame(HeartbeatRequest()))
    peers[0].closed = True
    log.answers.forget_closed()
    assert log.answers.take(peers[0], 7) is None  # type: ignore[arg-type]
    assert log.answers.take(peers[1], 7) == b""  # type: ignore[arg-type]


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

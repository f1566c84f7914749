from __future__ import annotations

import logging

import pytest

from tidelog.client._address import Address
from tidelog.client._network.ongoing_errors import ConnectionFailures, OngoingErrors
from tidelog.client.errors import AuthenticationError, BrokerUnreachableError

BROKER = Address("one", 9092)
REFUSED = "cannot connect to one:9092: connection refused"


@pytest.fixture
def now() -> list[float]:
    return [0.0]


@pytest.fixture
def ongoing(now: list[float]) -> OngoingErrors:
    return OngoingErrors(clock=lambda: now[0])


@pytest.fixture
def failures(now: list[float]) -> ConnectionFailures:
    return ConnectionFailures(clock=lambda: now[0])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def infos(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.INFO]


def test_an_error_that_lasts_is_warned_of_at_growing_intervals(
    caplog: pytest.LogCaptureFixture, now: list[float], ongoing: OngoingErrors
) -> None:
    for second in range(2000):
        now[0] = float(second)
        ongoing.note("fetching from broker 1", "no answer")
    assert warnings(caplog) == [
        f"fetching from broker 1: no success for {second} s, still trying: no answer"
        for second in (10, 30, 60, 120, 240, 480, 960, 1560)
    ]


def test_a_failed_connection_is_warned_of_at_once_and_reported_when_it_works_again(
    caplog: pytest.LogCaptureFixture, now: list[float], failures: ConnectionFailures
) -> None:
    caplog.set_level(logging.INFO, logger="tidelog.client")
    for second in range(70):
        now[0] = float(second)
        failures.failed(BROKER, BrokerUnreachableError(REFUSED))
    assert warnings(caplog) == [REFUSED, *(f"{REFUSED} (for {second} s now)" for second in (10, 30, 60))]
    assert not infos(caplog)
    failures.reached(BROKER)
    failures.reached(BROKER)
    assert infos(caplog) == ["connected to one:9092 after 69 s"]


def test_each_address_is_reported_by_itself(
    caplog: pytest.LogCaptureFixture, failures: ConnectionFailures
) -> None:
    failures.failed(BROKER, BrokerUnreachableError("one is down"))
    failures.failed(Address("two", 9092), BrokerUnreachableError("two is down"), " (check its listeners)")
    failures.failed(BROKER, BrokerUnreachableError("one is down"))
    assert warnings(caplog) == ["one is down", "two is down (check its listeners)"]


def test_a_warning_is_one_line_whatever_a_broker_has_sent(
    caplog: pytest.LogCaptureFixture, ongoing: OngoingErrors, failures: ConnectionFailures
) -> None:
    error = AuthenticationError("refused: \x1b[31m\nERROR \u202e")
    failures.failed(BROKER, error)
    ongoing.note("updating metadata", "\r\n", patience_s=0.0)
    assert warnings(caplog) == [
        r"refused: \x1b[31m\nERROR \u202e",
        r"updating metadata: no success for 0 s, still trying: \r\n",
    ]


def test_a_failure_that_is_raised_to_a_waiting_caller_is_not_reported(
    caplog: pytest.LogCaptureFixture, failures: ConnectionFailures
) -> None:
    with failures.raised():
        failures.failed(BROKER, BrokerUnreachableError(REFUSED))
    assert not caplog.records
    failures.failed(BROKER, BrokerUnreachableError(REFUSED))
    assert warnings(caplog) == [REFUSED]


def test_what_the_connection_has_reported_is_ongoing_without_a_second_warning(
    caplog: pytest.LogCaptureFixture, now: list[float], ongoing: OngoingErrors, failures: ConnectionFailures
) -> None:
    refusal = AuthenticationError("one:9092 refused the login")
    failures.failed(BROKER, refusal)
    caplog.clear()
    for second in range(20):
        now[0] = float(second)
        ongoing.note("updating metadata", BrokerUnreachableError("none of 2 brokers can be reached"))
        ongoing.note("finding the coordinator", refusal)
    assert not warnings(caplog)
    assert ongoing.longest == (19.0, "none of 2 brokers can be reached")
    ongoing.note("a login that no connection has reported", AuthenticationError("log in"), patience_s=0.0)
    assert warnings(caplog) == [
        "a login that no connection has reported: no success for 0 s, still trying: log in"
    ]


def test_the_longest_error_is_the_one_that_goes_on(now: list[float], ongoing: OngoingErrors) -> None:
    assert ongoing.longest is None
    assert ongoing.current is None
    ongoing.note("a broker whose partitions move away", "refused")
    now[0] = 1.0
    ongoing.note("a broker that is down", "no answer")
    now[0] = 41.0
    ongoing.note("a broker that is down", "still no answer")
    assert ongoing.longest == (40.0, "still no answer")
    current = ongoing.current
    assert current is not None
    assert (current.seconds, current.error) == (40.0, "still no answer")
    ongoing.over("a broker that is down")
    assert ongoing.longest == (0.0, "refused")
    now[0] = 100.0
    assert ongoing.longest is None


def test_an_error_that_passes_is_forgotten(
    caplog: pytest.LogCaptureFixture, now: list[float], ongoing: OngoingErrors
) -> None:
    ongoing.note("a", "first")
    now[0] = 5.0
    ongoing.note("b", "second")
    assert ongoing.reason == "second"
    ongoing.over("b")
    assert ongoing.reason == "first"
    ongoing.over("a")
    assert ongoing.reason is None
    now[0] = 12.0
    ongoing.note("a", "again")
    assert not warnings(caplog)

"""Property files for brokers before Kafka 3.0 keep their meaning."""

from __future__ import annotations

import pytest

from tidelog.cli.start import StartOptions, settings
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.broker_options import BROKER_OPTIONS
from tidelog.config.options.old_broker_options import ADDRESSES, RENAMED, current_options
from tidelog.config.options.unsupported_options import KNOWN_UNSUPPORTED

OLD = {each.name for each in RENAMED} | {name for names in ADDRESSES.values() for name in names}


def test_an_old_name_is_no_option_and_names_one() -> None:
    assert not OLD & (BROKER_OPTIONS.keys() | KNOWN_UNSUPPORTED)
    assert {each.current for each in RENAMED} | ADDRESSES.keys() <= BROKER_OPTIONS.keys()


@pytest.mark.parametrize(
    ("raw", "current", "words"),
    [
        ({"port": "9777"}, {"listeners": "PLAINTEXT://:9777"}, "port is now listeners=PLAINTEXT://:9777"),
        ({"host.name": "127.0.0.1"}, {"listeners": "PLAINTEXT://127.0.0.1:9092"}, "host.name is now"),
        ({"host.name": "::1", "port": "1"}, {"listeners": "PLAINTEXT://[::1]:1"}, "host.name and port are"),
        (
            {"port": "9777", "advertised.host.name": "a"},
            {"listeners": "PLAINTEXT://:9777", "advertised.listeners": "PLAINTEXT://a:9777"},
            "advertised.host.name is now advertised.listeners=PLAINTEXT://a:9777",
        ),
        (
            {"host.name": "h", "advertised.port": "1"},
            {"listeners": "PLAINTEXT://h:9092", "advertised.listeners": "PLAINTEXT://h:1"},
            "advertised.port is now advertised.listeners=PLAINTEXT://h:1",
        ),
        (
            {"port": "1", "listeners": "PLAINTEXT://:9"},
            {"listeners": "PLAINTEXT://:9"},
            "port is ignored, as listeners is set",
        ),
        ({"log.cleanup.interval.mins": "2"}, {"log.retention.check.interval.ms": "120000"}, "is now"),
        ({"log.delete.delay.ms": "7"}, {"log.segment.delete.delay.ms": "7"}, "is now"),
        ({"offsets.topic.retention.minutes": "9"}, {"offsets.retention.minutes": "9"}, "is now"),
    ],
)
def test_old_options_become_current_ones_with_one_warning(
    raw: dict[str, str], current: dict[str, str], words: str
) -> None:
    found, warning = current_options(raw | {"broker.id": "1"})
    assert found == current | {"broker.id": "1"}
    assert warning is not None
    assert words in warning
    BrokerConfig(found)


def test_current_options_are_left_as_they_are() -> None:
    raw = {"listeners": "SSL://:1", "log.retention.minutes": "1"}
    assert current_options(raw) == (raw, None)


def test_the_command_line_wins_over_an_old_address() -> None:
    options = StartOptions()
    options.set = ["port=1", "advertised.host.name=a"]
    assert settings(options)[0] == {
        "listeners": "PLAINTEXT://:1",
        "advertised.listeners": "PLAINTEXT://a:1",
    }
    options.listen = "127.0.0.1:2"
    assert settings(options)[0] == {"listeners": "PLAINTEXT://127.0.0.1:2"}
    options.set = ["advertised.listeners=PLAINTEXT://b:3"]
    assert settings(options)[0] == {
        "listeners": "PLAINTEXT://127.0.0.1:2",
        "advertised.listeners": "PLAINTEXT://b:3",
    }


def test_a_value_that_is_no_number_is_refused_by_the_current_name() -> None:
    found, _ = current_options({"log.cleanup.interval.mins": "often"})
    with pytest.raises(Exception, match=r"log\.retention\.check\.interval\.ms"):
        BrokerConfig(found)

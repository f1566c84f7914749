"""Which cluster a command talks to: what it is called with wins, then a properties file, then the default."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Never

import pytest

from tidelog.cli import commands
from tidelog.cli.connect import client_options
from tidelog.cli.shared_options import DEFAULT_BOOTSTRAP, Connection
from tidelog.client._network.cluster import Cluster
from tidelog.errors import ErrorCode, KafkaError
from tidelog_rewards.detection import detection_report
from tidelog_rewards.generator import delivery

PROD = "prod.example:9092"


@pytest.fixture
def prod_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of somebody who works with a cluster by its properties file."""
    file = tmp_path / "prod.properties"
    file.write_text(f"bootstrap.servers={PROD}\nsecurity.protocol=SSL\n")
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(file))
    monkeypatch.delenv("TIDELOG_BOOTSTRAP", raising=False)
    return file


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The brokers that commands were about to ask; none is asked."""
    found: list[str] = []

    def refuse(self: Cluster, servers: str | list[str], *_: Any, **__: Any) -> None:
        found.append(servers if isinstance(servers, str) else ",".join(servers))
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "nobody is asked in this test")

    monkeypatch.setattr(Cluster, "__init__", refuse)
    return found


@pytest.mark.parametrize("given", [DEFAULT_BOOTSTRAP, "there.example:1"])
def test_brokers_on_the_command_line_win_over_the_file_even_where_they_are_the_default(
    prod_file: Path, asked: list[str], given: str
) -> None:
    assert commands.run(["topics", "delete", "orders", "--yes", "-b", given]) == 1
    assert commands.run(["users", "list", "-b", given]) == 1
    assert asked == [given, given]


def test_brokers_in_the_environment_win_over_the_file_even_where_they_are_the_default(
    prod_file: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDELOG_BOOTSTRAP", DEFAULT_BOOTSTRAP)
    assert commands.run(["topics", "delete", "orders", "--yes"]) == 1
    assert asked == [DEFAULT_BOOTSTRAP]


def test_the_file_names_the_brokers_where_nobody_else_does(prod_file: Path, asked: list[str]) -> None:
    assert commands.run(["topics", "list"]) == 1
    assert asked == [PROD]


def test_without_a_word_it_is_the_default(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("TIDELOG_BOOTSTRAP", "TIDELOG_COMMAND_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    assert commands.run(["topics", "list"]) == 1
    without_brokers = tmp_path / "tls.properties"
    without_brokers.write_text("security.protocol=SSL\n")
    monkeypatch.setenv("TIDELOG_COMMAND_CONFIG", str(without_brokers))
    assert commands.run(["topics", "list"]) == 1
    assert asked == [DEFAULT_BOOTSTRAP, DEFAULT_BOOTSTRAP]


def test_brokers_win_over_properties(prod_file: Path) -> None:
    options = client_options(
        Connection(DEFAULT_BOOTSTRAP, prod_file), properties={"bootstrap.servers": "other.example:1"}
    )
    assert options["bootstrap.servers"] == DEFAULT_BOOTSTRAP
    assert options["security.protocol"] == "SSL"


def test_the_help_shows_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert commands.run(["topics", "list", "--help"]) == 0
    assert DEFAULT_BOOTSTRAP in capsys.readouterr().out


def test_events_go_where_the_file_says_and_are_read_there(
    prod_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[Mapping[str, object]] = []

    def refuse(options: Mapping[str, object], **_: object) -> Never:
        used.append(options)
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "nobody is asked in this test")

    monkeypatch.setattr("tidelog.cli.connect.with_admin", lambda *_: None)
    monkeypatch.setattr(delivery, "to_broker", refuse)
    monkeypatch.setattr(detection_report, "read_alerts", refuse)
    truth = tmp_path / "truth.jsonl"
    truth.touch()
    for words in (["generate", "--count", "1"], ["score", "--truth", str(truth)]):
        assert commands.run(["events", *words]) == 1
        assert commands.run(["events", *words, "-b", DEFAULT_BOOTSTRAP]) == 1
    assert [each["bootstrap.servers"] for each in used] == [PROD, DEFAULT_BOOTSTRAP] * 2
    assert {each["security.protocol"] for each in used} == {"SSL"}

"""What `tidelog cluster start` starts."""

from __future__ import annotations

import importlib.util
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from tidelog.cli.cluster import layout
from tidelog.cli.cluster.layout import ClusterSettings, default_options, earlier_brokers
from tidelog.cli.failure import Failure
from tidelog.cli.foreground import require_free
from tidelog.processes import zookeeper
from tidelog.properties import read_properties

Tidelog = Callable[..., tuple[int, str, str]]


def test_three_brokers_keep_three_replicas_two_in_sync() -> None:
    options = default_options(3)
    assert options["default.replication.factor"] == "3"
    assert options["offsets.topic.replication.factor"] == "3"
    assert options["min.insync.replicas"] == options["transaction.state.log.min.isr"] == "2"
    assert default_options(64) == options


def test_fewer_brokers_ask_for_no_more_replicas_than_there_are() -> None:
    assert default_options(1)["transaction.state.log.replication.factor"] == "1"
    assert default_options(2)["default.replication.factor"] == "2"
    assert default_options(2)["min.insync.replicas"] == "1"


def test_each_broker_has_its_own_port_directory_and_id(tmp_path: Path) -> None:
    settings = ClusterSettings(3, tmp_path, 9092, options={"min.insync.replicas": "1", "broker.rack": "a\\b"})
    settings.write_properties(2, "127.0.0.1:2181/x")
    file = tmp_path / "config" / "broker-2.properties"
    assert settings.start_arguments(2) == ["start", str(file), "--listen", "127.0.0.1:9093"]
    options = read_properties(file)
    assert options["broker.id"] == "2"
    assert options["zookeeper.connect"] == "127.0.0.1:2181/x"
    assert options["log.dirs"] == str(tmp_path / "broker-2")
    assert options["min.insync.replicas"] == "1"
    assert options["broker.rack"] == "a\\b"


def test_port_zero_is_any_port_for_each_broker_and_coming_back_takes_the_same() -> None:
    settings = ClusterSettings(2, Path("my data"), 0)
    assert "127.0.0.1:0" in settings.start_arguments(2)
    command = settings.start_command(2, 40123)
    assert command == "tidelog start 'my data/config/broker-2.properties' --listen 127.0.0.1:40123"


def test_brokers_of_an_earlier_start_are_found_by_their_directories(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-4", "broker-x", "zookeeper"):
        (tmp_path / name).mkdir()
    assert list(earlier_brokers(tmp_path)) == [1, 4]


def test_a_port_in_use_is_said_before_anything_starts(tidelog: Tidelog, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Failure, match=f"port {port} is in use: choose another with --port"):
            require_free(range(port, port + 1), "--port")
        # Higher ones are no choice for --port: the other brokers come after it.
        if port <= 65_000:
            code, out, err = tidelog("cluster", "start", "--port", port, "--data-dir", tmp_path / "data")
            assert (code, out) == (1, "")
            assert err.startswith(f"error: port {port} is in use")
    assert not (tmp_path / "data").exists()


def test_a_port_of_zookeepers_that_is_in_use_is_refused_before_anything_starts(
    tidelog: Tidelog, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, out, err = tidelog(
            "cluster", "start", "--port", 0, "--zookeeper-port", port, "--data-dir", tmp_path / "data"
        )
    assert (code, out) == (1, "")
    assert err.startswith(f"error: port {port} is in use: choose another with --zookeeper-port")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--port", 40100, "--zookeeper-port", 40102), "conflicts with the brokers' ports"),
        (("--zookeeper", "zk:2181", "--zookeeper-port", 0), "use only one of them"),
        (("--zookeeper-port", 70000), "'--zookeeper-port'"),
        (("--zookeeper-port", "two"), "'--zookeeper-port'"),
    ],
)
def test_a_port_of_zookeepers_that_makes_no_sense_is_wrong_usage(
    tidelog: Tidelog, tmp_path: Path, arguments: tuple[object, ...], why: str
) -> None:
    code, out, err = tidelog("cluster", "start", *arguments, "--data-dir", tmp_path / "data")
    assert (code, out) == (2, "")
    assert why in err
    assert not (tmp_path / "data").exists()


def test_zookeeper_takes_the_port_it_is_told_else_the_usual_one_else_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def chosen(port: int, zookeeper_port: int | None = None) -> int | None:
        return ClusterSettings(3, Path(), port, zookeeper_port=zookeeper_port).own_zookeeper_port()

    monkeypatch.setattr(layout, "is_free", lambda port: True)
    assert chosen(9092, 12181) == chosen(0, 12181) == 12181
    assert chosen(9092, 0) is None
    assert chosen(9092) == 2181
    assert chosen(0) is None
    assert chosen(2180) is None, "broker 2 listens there"
    monkeypatch.setattr(layout, "is_free", lambda port: False)
    assert chosen(9092) is None


def test_a_file_is_no_data_directory(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in ("cluster", "zookeeper"):
        code, _, err = tidelog(command, "start", "--port", 0, "--data-dir", tmp_path / "file")
        assert code == 1
        assert "is a file: specify a directory" in err


def test_without_pyspark_zookeeper_says_what_to_install(
    tidelog: Tidelog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zookeeper, "find_java", lambda: Path("java"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for command in ("zookeeper", "cluster"):
        code, out, err = tidelog(command, "start", "--port", 0, "--data-dir", tmp_path / command)
        assert (code, out) == (1, "")
        assert "pip install 'tidelog[spark]'" in err
        assert err.count("\n") == 1


def test_options_that_may_hold_passwords_can_be_read_by_their_owner_alone(tmp_path: Path) -> None:
    settings = ClusterSettings(1, tmp_path, 0)
    file = settings.properties_file(1)
    file.parent.mkdir()
    file.write_text("of an earlier start")
    file.chmod(0o644)
    settings.write_properties(1, "localhost:2181")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600

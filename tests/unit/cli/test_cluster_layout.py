"""What `tidelog cluster start` starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

from tidelog.cli.cluster_layout import ClusterSettings, default_options, earlier_brokers

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


def test_each_broker_has_its_own_port_directory_and_id() -> None:
    settings = ClusterSettings(3, Path("data"), 9092, options={"min.insync.replicas": "1"})
    arguments = settings.start_arguments(2, "127.0.0.1:2181/x")
    assert arguments[:5] == ["start", "--listen", "127.0.0.1:9093", "--data-dir", "data/broker-2"]
    assert "broker.id=2" in arguments
    assert "zookeeper.connect=127.0.0.1:2181/x" in arguments
    assert "min.insync.replicas=1" in arguments
    assert "min.insync.replicas=2" not in arguments


def test_port_zero_is_any_port_for_each_broker_and_coming_back_takes_the_same() -> None:
    settings = ClusterSettings(2, Path("my data"), 0)
    assert "127.0.0.1:0" in settings.start_arguments(2, "zk")
    command = settings.start_command(2, "zk", 40123)
    assert command.startswith("tidelog start --listen 127.0.0.1:40123 --data-dir 'my data/broker-2' ")


def test_brokers_of_an_earlier_start_are_found_by_their_directories(tmp_path: Path) -> None:
    for name in ("broker-1", "broker-4", "broker-x", "zookeeper"):
        (tmp_path / name).mkdir()
    assert list(earlier_brokers(tmp_path)) == [1, 4]


def test_a_port_in_use_is_said_before_anything_starts(tidelog: Tidelog, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = min(taken.getsockname()[1], 65000)
        code, out, err = tidelog("cluster", "start", "-n", 1, "-p", port, "-d", tmp_path / "data")
        if port == taken.getsockname()[1]:
            assert (code, out) == (1, "")
            assert f"port {port} is in use: name another with --port" in err
    assert not (tmp_path / "data").exists()


def test_a_file_is_no_data_directory(tidelog: Tidelog, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for command in ("cluster", "zookeeper"):
        code, _, err = tidelog(command, "start", "-p", 0, "-d", tmp_path / "file")
        assert code == 1
        assert "is a file: name a directory" in err

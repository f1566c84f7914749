"""`tidelog cluster start` and `zookeeper start` from the first line to the last, and when they are killed."""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

import pytest
from tests.cluster.cluster_process import ForegroundCommand, local_cluster
from tests.integration.command_line import CommandLine

WAIT_S = 60.0


def assert_end(pids: list[int]) -> None:
    """All of these processes end."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], WAIT_S)[0], f"process {pid} lives on"
        os.close(handle)


@pytest.mark.slow
def test_a_broker_may_die_and_a_second_start_goes_on_with_the_data(tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        tidelog = CommandLine(cluster.value("bootstrap.servers"))
        tidelog.ok("topics", "create", "orders", "--partitions", "3")
        (broker,) = cluster.members("broker-2.properties")
        broker.signal(signal.SIGKILL)
        state = tidelog.wait_for(
            lambda state: state["under_replicated"] >= 3 and not state["offline"], "cluster", "describe"
        )
        assert [each["alive"] for each in state["brokers"]] == [True, False, True]
        assert state["under_min_isr"] == 0
        lines = tmp_path / "lines"
        lines.write_text("one\ntwo\nthree\n")
        assert tidelog("produce", "orders", "--acks", "all", "--file", str(lines)).returncode == 0
        deadline = time.monotonic() + WAIT_S
        while "restart it with\n  tidelog start" not in cluster.complaints:
            assert time.monotonic() < deadline, cluster.complaints
            time.sleep(0.05)
        assert "broker 2 at 127.0.0.1:" in cluster.complaints
        others = [each.pid for each in cluster.members("")]
        assert cluster.stop() == 0
        assert_end(others)

    with local_cluster(tmp_path) as cluster:
        tidelog = CommandLine(cluster.value("bootstrap.servers"))
        tidelog.wait_for(
            lambda state: state["partitions"] == 3 and not state["troubled"], "cluster", "describe"
        )
        read = tidelog("consume", "orders", "--from-beginning", "--until-end").stdout
        assert sorted(read.split()) == ["one", "three", "two"]


@pytest.mark.slow
def test_nothing_of_a_killed_cluster_lives_on(tmp_path: Path) -> None:
    with local_cluster(tmp_path) as cluster:
        members = [each.pid for each in cluster.members("")]
        assert len(cluster.members(".properties")) == 3
        assert len(cluster.members("QuorumPeerMain")) == 1
        cluster.kill()
        assert_end(members)


def test_three_zookeeper_servers_start_stop_and_end_with_a_killed_command(tmp_path: Path) -> None:
    arguments = ("zookeeper", "start", "--port", "0", "--servers", "3", "--data-dir", str(tmp_path / "data"))
    for kill in (False, True):
        with ForegroundCommand(tmp_path, *arguments) as command:
            assert command.value("zookeeper.connect").count("127.0.0.1:") == 3
            members = [each.pid for each in command.members("")]
            assert len(command.members("QuorumPeerMain")) == 3
            if kill:
                command.kill()
            else:
                assert command.stop() == 0
            assert_end(members)

"""`make cassandra`: the script runs a node until it is told to stop, and finds its data again."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from foreign import toolchain
from foreign.broker_process import free_port
from tests.chaos.process_tree import descendants
from tests.compat.conftest import available

from tidelog.spark.sinks.cassandra_connection import CassandraCluster, connect, disconnect

SCRIPT = toolchain.ROOT / "scripts" / "run_cassandra.py"
WAIT_S = 240.0


@contextmanager
def script(port: int, directory: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, str(SCRIPT), "--port", str(port), "--directory", str(directory)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        for member in descendants(process.pid):
            member.signal(signal.SIGKILL)
        process.wait()


def wait_for_line(process: subprocess.Popen[str], beginning: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(beginning):
            return
    raise AssertionError(f"it ended with {process.wait()}")


def wait_until_free(port: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_script_runs_a_node_that_keeps_its_data(tmp_path: Path, number: signal.Signals) -> None:
    with available():
        toolchain.program("java")
        toolchain.classpath("cassandra-5")
    port = free_port()
    points = CassandraCluster.at(f"127.0.0.1:{port}")
    for count in (1, 2):
        with script(port, tmp_path) as process:
            wait_for_line(process, f"Cassandra answers at 127.0.0.1:{port}")
            session = connect(points).session
            session.execute(
                "CREATE KEYSPACE IF NOT EXISTS k WITH replication = "
                "{'class': 'SimpleStrategy', 'replication_factor': 1}"
            )
            session.execute("CREATE TABLE IF NOT EXISTS k.t (n int PRIMARY KEY)")
            session.execute(f"INSERT INTO k.t (n) VALUES ({count})")
            assert sorted(row[0] for row in session.execute("SELECT n FROM k.t")) == list(range(1, count + 1))
            disconnect(points)
            process.send_signal(number)
            assert process.wait(WAIT_S) == 0
        wait_until_free(port)


def test_a_command_has_a_node_as_long_as_it_runs(tmp_path: Path) -> None:
    with available():
        toolchain.program("java")
        toolchain.classpath("cassandra-5")
    directory = tmp_path / "node"
    said = tmp_path / "said"
    work = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2]); sys.exit(7)"
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--port", "0", "--fresh", "--directory", str(directory),
         "--", sys.executable, "-c", work, str(said), "at {}"],
        capture_output=True, text=True, timeout=WAIT_S,
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    port = int(said.read_text().removeprefix("at 127.0.0.1:"))
    assert f"Cassandra answers at 127.0.0.1:{port};" in done.stdout
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


def test_what_is_not_cassandras_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "letter").touch()
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--port", "0", "--fresh", "--directory", str(tmp_path)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"--fresh: {tmp_path} holds files that are not Cassandra's\n"
    assert (tmp_path / "letter").exists()


def test_a_missing_tool_is_told_in_one_sentence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--port", "0", "--directory", str(tmp_path / "node")],
        capture_output=True, text=True, timeout=60, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("Cassandra cannot run: `java` is not installed: Cassandra 5.0 runs on Java")
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_told_in_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = subprocess.run(
            [sys.executable, str(SCRIPT), "--port", str(port), "--directory", str(tmp_path)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"Cassandra cannot run: port {port} is taken, choose another --port\n"

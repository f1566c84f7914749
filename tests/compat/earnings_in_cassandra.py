"""`tidelog pipeline run earnings` on a real Cassandra, and what its tables hold; for the tests of both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.contract.ledgers import Tables

from tidelog.spark.settings import PipelineSettings
from tidelog.spark.sinks.cassandra_connection import cluster_of, connect
from tidelog_rewards.jobs.earnings import cassandra_ledger

WAIT_S = 240.0


def derived(settings: PipelineSettings) -> Tables:
    session = connect(cluster_of(settings)).session
    specs = (cassandra_ledger.USERS, cassandra_ledger.DAILY, cassandra_ledger.TASKS)
    return {
        spec.name: sorted(
            (
                tuple(row)
                for row in session.execute(
                    f"SELECT {', '.join(spec.names)} FROM {settings.keyspace}.{spec.name}"
                )
            ),
            key=repr,
        )
        for spec in specs
    }


def totals(settings: PipelineSettings) -> dict[str, int]:
    return {row[0]: row[1] for row in derived(settings)["user_earnings"]}


@contextmanager
def running(settings: PipelineSettings, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tidelog pipeline run earnings` on Cassandra, in a process group of its own."""
    assert settings.cassandra is not None
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", "earnings", "--master", "local[2]"]
    command += ["--bootstrap-server", settings.bootstrap_servers, "--directory", str(settings.directory)]
    command += ["--cassandra", settings.cassandra, "--keyspace", settings.keyspace, *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def wait_for(process: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert process.poll() is None, "the pipeline has ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)

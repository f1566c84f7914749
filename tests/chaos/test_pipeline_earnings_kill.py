"""earnings killed with -9 at arbitrary moments, Java process and all: not a cent is lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.pipeline_traffic import EarningsTraffic, latest_states, ledger_totals, read_all, send

from tidelog.pipelines.framework import events
from tidelog.pipelines.framework.status import last_commit
from tidelog.pipelines.framework.topics import ensure_topics
from tidelog.pipelines.pipeline import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(900)]

KILLS = 3
WAIT_S = 240.0


@contextmanager
def running(
    bootstrap: str, directory: Path, *options: str, pipeline: str = "earnings", cores: int = 2
) -> Iterator[subprocess.Popen[bytes]]:
    """`tidelog pipeline run` in a process group of its own."""
    command = [sys.executable, "-m", "tidelog", "pipeline", "run", pipeline, "--master", f"local[{cores}]"]
    command += ["--bootstrap-server", bootstrap, "--directory", str(directory), *options]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(60)


def wait_for_batch(process: subprocess.Popen[bytes], checkpoint: Path, batch: int) -> None:
    """Wait until the checkpoint calls this batch done."""
    deadline = time.monotonic() + WAIT_S
    while (last_commit(checkpoint) or (-1, 0.0))[0] < batch:
        assert process.poll() is None, "the pipeline has ended by itself"
        assert time.monotonic() < deadline, "no batch has ended"
        time.sleep(0.02)


def test_totals_are_exact_after_kill_nine(tmp_path: Path) -> None:
    draw = random.Random(7)
    directory = tmp_path / "pipelines"
    settings = PipelineSettings("", directory)
    checkpoint = settings.checkpoint("earnings")
    traffic = EarningsTraffic(seed=7, users=50)
    with BrokerProcess(tmp_path / "broker") as broker:
        settings = PipelineSettings(broker.bootstrap, directory)
        ensure_topics(settings, partitions=2)
        done = -1
        for _ in range(KILLS):
            send(
                broker.bootstrap,
                traffic.shuffled([*traffic.fresh(2000), *traffic.again(400), *traffic.damaged(20)]),
            )
            options = ("--trigger", "0 seconds", "--max-offsets-per-trigger", "200")
            with running(broker.bootstrap, directory, *options) as process:
                wait_for_batch(process, checkpoint, done + 1)
                # Where in a batch it ends is left to chance, over more than a batch's length.
                time.sleep(draw.random())
                os.killpg(process.pid, signal.SIGKILL)
            found = last_commit(checkpoint)
            assert found is not None
            done = found[0]
        with running(broker.bootstrap, directory, "--once") as process:
            assert process.wait(WAIT_S) == 0
        assert ledger_totals(settings) == dict(traffic.cents)
        states = latest_states(broker.bootstrap)
        assert {user: state["total_cents"] for user, state in states.items()} == dict(traffic.cents)
        letters = [dict(letter.headers) for letter in read_all(broker.bootstrap, events.DEAD_LETTERS)]
        places = {(each["topic"], each["partition"], each["offset"]) for each in letters}
        assert len(letters) == len(places) == traffic.broken

"""`tidelog pipeline run` as a process: signals stop it between micro-batches, or while Spark still starts."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.chaos.process_tree import Member, descendants
from tests.integration.pipeline_traffic import EarningsTraffic, ledger_totals, send

from tidelog.metrics.pipeline_catalog import FAMILIES
from tidelog.spark.pipelines.status import last_commit
from tidelog.spark.settings import PipelineSettings
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.topics import ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(400)]

WAIT_S = 180.0


class Running:
    """The command, in a session of its own, and what it says."""

    def __init__(self, bootstrap: str, directory: Path, *options: str) -> None:
        self.out, self.err = directory / "stdout", directory / "stderr"
        command = [sys.executable, "-m", "tidelog", "pipeline", "run", "earnings", "--master", "local[2]"]
        command += ["--bootstrap-server", bootstrap, "--directory", str(directory / "pipe lines")]
        command += options
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self.process = subprocess.Popen(command, stdout=out, stderr=err, start_new_session=True)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert self.process.poll() is None, self.err.read_text()
            assert time.monotonic() < deadline, self.err.read_text()
            time.sleep(0.02)

    def java(self) -> list[Member]:
        return [each for each in descendants(self.process.pid) if "/bin/java" in each.command]

    def page(self) -> str:
        """Its metrics."""
        found = re.search(r"metrics are at (\S+)", self.err.read_text())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=WAIT_S) as answer:
            return str(answer.read().decode())

    def said(self) -> list[str]:
        """Its lines on stderr, without those that come at each start or on a busy machine."""
        lines = self.err.read_text().splitlines()
        return [
            line
            for line in lines
            if not line.startswith(("WARNING: Using incubator", "earnings is started again"))
        ]


@contextmanager
def running(bootstrap: str, directory: Path, *options: str) -> Iterator[Running]:
    directory.mkdir(parents=True, exist_ok=True)
    started = Running(bootstrap, directory, *options)
    try:
        yield started
    finally:
        for member in descendants(started.process.pid):
            member.signal(signal.SIGKILL)
        started.process.wait()


def assert_ends(members: list[Member]) -> None:
    for member in members:
        try:
            handle = os.pidfd_open(member.pid)
        except ProcessLookupError:
            continue
        assert select.select([handle], [], [], WAIT_S)[0], f"{member} lives on"
        os.close(handle)


@pytest.fixture(scope="module")
def own_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of our own: the names of the pipelines' topics are fixed."""
    with BrokerProcess(tmp_path_factory.mktemp("command") / "data") as broker:
        yield broker.bootstrap


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_spark_starts_ends_java_too(
    own_bootstrap: str, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    with running(own_bootstrap, tmp_path) as command:
        command.wait_for(lambda: bool(command.java()))
        everybody = descendants(command.process.pid)
        command.process.send_signal(number)
        assert command.process.wait(WAIT_S) == code
        assert command.said() == ["starting Spark: this takes some seconds"]
        assert_ends(everybody)


def test_java_that_goes_by_itself_is_what_people_are_told_of(own_bootstrap: str, tmp_path: Path) -> None:
    settings = PipelineSettings(own_bootstrap, tmp_path / "pipe lines")
    with running(own_bootstrap, tmp_path) as command:
        command.wait_for((settings.checkpoint("earnings") / "metadata").exists)
        for member in command.java():
            member.signal(signal.SIGKILL)
        assert command.process.wait(WAIT_S) == 1
        assert "error: Spark's Java process has gone" in command.err.read_text()
        assert "--conf spark.driver.memory=4g" in command.err.read_text()


def test_a_signal_to_the_whole_group_lets_the_micro_batch_end(own_bootstrap: str, tmp_path: Path) -> None:
    traffic = EarningsTraffic(seed=3)
    settings = PipelineSettings(own_bootstrap, tmp_path / "pipe lines")
    ensure_topics(settings, partitions=2)
    send(own_bootstrap, traffic.fresh(300))
    with running(own_bootstrap, tmp_path, "--metrics", "127.0.0.1:0") as command:
        command.wait_for(lambda: last_commit(settings.checkpoint("earnings")) is not None)
        command.wait_for(
            lambda: 'tidelog_pipeline_input_rows_total{pipeline="earnings"} 300\n' in command.page()
        )
        command.wait_for(lambda: 'tidelog_pipeline_lag{pipeline="earnings"} 0\n' in command.page())
        # Earnings has no watermark, and nothing was malformed.
        of_others = {"tidelog_pipeline_watermark_delay_seconds", "tidelog_pipeline_malformed_reasons_total"}
        of_a_query = {each.name for each in FAMILIES} - of_others
        command.wait_for(lambda: all(f"# TYPE {name} " in command.page() for name in of_a_query))
        everybody = descendants(command.process.pid)
        os.killpg(command.process.pid, signal.SIGTERM)
        assert command.process.wait(WAIT_S) == 0
        metrics, *said = command.said()
        assert metrics.startswith("metrics are at http://127.0.0.1:")
        assert said == [
            "starting Spark: this takes some seconds",
            "stopping after the running micro-batch; once more stops at once",
            "stopped after 300 rows in 1 batch",
        ]
        (figures,) = command.out.read_text().splitlines()
        assert figures.split("\t")[:3] == ["earnings", "1", "300"]
        assert_ends(everybody)
    assert ledger_totals(settings) == dict(traffic.cents)
    assert (settings.directory / "spark.log").read_text() == ""

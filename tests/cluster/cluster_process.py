"""``tidelog cluster start`` and ``tidelog zookeeper start`` as a test runs them: processes on free ports."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

from tests.chaos.process_tree import Member, descendants

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0


class ForegroundCommand:
    """A command that says ``ready`` and runs until it is told to stop."""

    def __init__(self, directory: Path, *arguments: str) -> None:
        self._arguments = arguments
        self._out = directory / "stdout"
        self._err = directory / "stderr"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def said(self) -> str:
        return self._out.read_text()

    @property
    def complaints(self) -> str:
        return self._err.read_text()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def value(self, name: str) -> str:
        found = re.search(rf"^{re.escape(name)}=(.*)$", self.said, re.MULTILINE)
        assert found is not None, self.said
        return found[1]

    def start(self, ready: str = "ready\n") -> None:
        """Start it, and wait until it prints ``ready``."""
        self._out.parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidelog", *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=environment,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while ready not in self.said:
            code = self._process.poll()
            assert code is None, f"it ended with {code}:\n{self.complaints}"
            assert time.monotonic() < deadline, f"it is not ready:\n{self.said}{self.complaints}"
            time.sleep(0.05)

    def members(self, part_of_command: str) -> list[Member]:
        """Its processes, of those whose command line has this part."""
        return [each for each in descendants(self.pid) if part_of_command in each.command]

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_TIMEOUT_S)

    def __enter__(self) -> ForegroundCommand:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        try:
            self.stop()
        except subprocess.TimeoutExpired:
            # What it has started ends with it.
            self.kill()


def local_cluster(directory: Path, *arguments: str) -> ForegroundCommand:
    """Three brokers on free ports, their data under ``directory``, with few internal partitions."""
    options = (
        "zookeeper.session.timeout.ms=10000",
        "offsets.topic.num.partitions=4",
        "transaction.state.log.num.partitions=4",
    )
    return ForegroundCommand(
        directory,
        *("cluster", "start", "--port", "0", "--data-dir", str(directory / "data")),
        *(text for option in options for text in ("--set", option)),
        *arguments,
    )

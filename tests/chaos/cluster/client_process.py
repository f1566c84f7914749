"""A client of a scenario: ``workloads`` in a process of its own, which may be killed and started again."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.chaos.cluster.workloads import Work

from tidelog.processes.watchdog import end_with_me

END_S = 180.0
_ROOT = Path(__file__).parents[3]


class Client:
    """A process that works; ``work.life`` counts how often it was started again."""

    def __init__(self, work: Work, directory: Path) -> None:
        self.work = work
        self._log = directory / f"{work.name}.log"
        self._process = self._start()

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """Of a process that has ended: 0 if it was told to, or is done."""
        return self._process.poll()

    @property
    def said(self) -> str:
        return self.trace[-3000:]

    @property
    def trace(self) -> str:
        """All that it has said."""
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def start_again(self) -> None:
        assert not self.is_running
        self.work = dataclasses.replace(self.work, life=self.work.life + 1)
        self._process = self._start()

    def stop(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> None:
        code = self._process.wait(END_S)
        assert code == 0, f"{self.work.name} ended with {code}:\n{self.said}"

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.chaos.cluster.workloads"]
        command.append(json.dumps(dataclasses.asdict(self.work)))
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=_ROOT,
                env={**os.environ, "PYTHONPATH": str(_ROOT)},
            )
        end_with_me(process.pid)
        return process

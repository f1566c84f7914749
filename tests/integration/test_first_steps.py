"""docs/tutorials/first-steps.md: its commands and its program run, in order, and print what the page shows.

Lines that begin with `$` in a ``console`` block are commands, on a terminal 100 columns wide; the lines below
a command are what it prints, except blank lines. `tidelog start` runs until the page starts it again.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidelog.testing.reserved_port import ReservedPort

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "first-steps.md"
TIMEOUT_S = 60
_BLOCK = re.compile(r"^```(console|python)\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.M | re.S)


def steps() -> Iterator[tuple[str, list[str]]]:
    """Each command, or the page's program as `python waiter.py`, with the lines that it prints."""
    for kind, body, output in _BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            yield body, output.splitlines()
            continue
        for command in re.split(r"^\$ ", body, flags=re.M)[1:]:
            line, *printed = command.splitlines()
            yield line, printed


class Reader:
    """A newcomer with two terminals."""

    def __init__(self, directory: Path, port: int) -> None:
        self._directory = directory
        self._address = f"127.0.0.1:{port}"
        self._broker: subprocess.Popen[str] | None = None
        self._environment = os.environ | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
            "TIDELOG_BOOTSTRAP": self._address,
            "COLUMNS": "100",
            "NO_COLOR": "1",
            "TERM": "dumb",
        }

    def start(self, command: str) -> None:
        """Start a broker, after the previous one has stopped, and wait until it is ready."""
        self.stop()
        self._broker = subprocess.Popen(
            ["bash", "-c", f"exec {command} --listen {self._address}"],
            cwd=self._directory,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._broker.stdout is not None
        assert self._broker.stdout.readline() == f"Tidelog is ready on {self._address}\n"

    def stop(self) -> None:
        """Press Ctrl-C in the broker's terminal."""
        if self._broker is not None:
            self._broker.send_signal(signal.SIGINT)
            assert self._broker.wait(TIMEOUT_S) == 0
            assert self._broker.stdout is not None
            self._broker.stdout.close()
            self._broker = None

    def run(self, command: str) -> list[str]:
        """What a command prints on a terminal, without blank lines and spaces at the ends of lines."""
        terminal, theirs = pty.openpty()
        with os.fdopen(terminal, "rb", buffering=0) as screen:
            running = subprocess.Popen(
                ["bash", "-c", command],
                cwd=self._directory,
                env=self._environment,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
            )
            os.close(theirs)
            shown = b""
            # A terminal whose last user has gone ends with an error.
            with contextlib.suppress(OSError):
                while chunk := screen.read(65536):
                    shown += chunk
            assert running.wait(TIMEOUT_S) == 0, shown.decode()
        return [line.rstrip() for line in shown.decode().splitlines() if line.strip()]

    def write(self, name: str, program: str) -> None:
        (self._directory / name).write_text(program.replace("127.0.0.1:9092", self._address))


@pytest.mark.timeout(180)
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    done = 0
    with ReservedPort() as reserved:
        reader = Reader(tmp_path, reserved.port)
        try:
            for command, printed in steps():
                if command.startswith("tidelog start"):
                    assert printed == ["Tidelog is ready on localhost:9092"]
                    reader.start(command)
                elif command.startswith("from "):
                    reader.write("waiter.py", command)
                    assert reader.run("python waiter.py") == printed
                else:
                    assert reader.run(command) == printed, command
                done += 1
        finally:
            reader.stop()
    assert done >= 10

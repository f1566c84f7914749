"""``tidelog`` as a test runs it: in a pipe, or in a process of its own on a terminal of a certain width."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any

from tidelog.cli import commands

WAIT_S = 30.0


@dataclass
class Done:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


class CommandLine:
    """Runs commands against one cluster; ``cli.commands`` is what the installed script runs."""

    def __init__(self, bootstrap: str) -> None:
        self._environment = {**os.environ, "TIDELOG_BOOTSTRAP": bootstrap}
        self._bootstrap = bootstrap

    def __call__(self, *arguments: str) -> Done:
        """Run a command in this process, as in a pipe."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                code = commands.run([*arguments, "--bootstrap-server", self._bootstrap])
            return Done(code, _written(out), _written(err))

    def ok(self, *arguments: str) -> str:
        done = self(*arguments)
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    def json(self, *arguments: str) -> Any:
        done = self(*arguments, "--json")
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def refusal(self, *arguments: str) -> str:
        """The sentence on stderr of a command that fails."""
        done = self(*arguments)
        assert done.returncode == 1, done
        assert done.stderr.startswith("error: "), done
        assert "Traceback" not in done.stderr
        return done.stderr

    def wait_for(self, condition: Callable[[Any], bool], *arguments: str) -> Any:
        """The JSON of a command, once the condition holds for it."""
        deadline = time.monotonic() + WAIT_S
        while not condition(found := self.json(*arguments)):
            assert time.monotonic() < deadline, found
        return found

    def on_terminal(self, *arguments: str, columns: int = 100, typed: bytes = b"") -> tuple[int, str]:
        """Exit code, and everything that a person sees; ``typed`` is what they answer."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        environment = {**self._environment, "TERM": "xterm", "NO_COLOR": "1"}
        environment.pop("COLUMNS", None)
        with subprocess.Popen(
            [sys.executable, "-m", "tidelog", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
        ) as process:
            os.close(theirs)
            os.write(ours, typed)
            seen = b""
            # The terminal of a process that has ended reads as an error, not as an end.
            while chunk := _read(ours):
                seen += chunk
            code = process.wait(60)
        os.close(ours)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
        return code, text.replace("\r\n", "\n")


def _written(stream: IO[str]) -> str:
    stream.seek(0)
    return stream.read()


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""

"""Child processes, Python modules: a session each, so that Ctrl-C reaches the parent alone.

Every child runs under :mod:`tidelog.processes.guarded`: should the parent be killed, the child sees its
standard input close and ends by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

GUARD = "tidelog.processes.guarded"
STOP_GRACE_S = 20.0
_LINE_LIMIT_BYTES = 1 << 20
_TAIL_BYTES = 16_384


class Child:
    """One child process; what it says on stderr goes to a file, what it reports on stdout to the caller."""

    def __init__(self, name: str, log: Path) -> None:
        self.name = name
        self.log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Its process id, once it was started."""
        return self._process.pid if self._process is not None else None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or was never started."""
        return self._process.returncode if self._process is not None else None

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.returncode is None

    async def start(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
        """Run ``python -m module arguments`` under guard."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", GUARD, module, *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
                limit=_LINE_LIMIT_BYTES,
            )  # fmt: skip

    async def lines(self) -> AsyncIterator[str]:
        """What it prints on stdout, until it ends."""
        assert self._process is not None
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            yield line.decode("utf-8", "replace").rstrip("\n")

    async def reports(self) -> AsyncIterator[dict[str, Any]]:
        """Its lines that are JSON objects."""
        async for line in self.lines():
            with contextlib.suppress(ValueError):
                report = json.loads(line)
                if isinstance(report, dict):
                    yield report

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        assert self._process is not None
        return await self._process.wait()

    async def stop(self, grace_s: float = STOP_GRACE_S) -> int | None:
        """Ask it to end (SIGTERM), and end it when it does not listen."""
        if self._process is None:
            return None
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
        try:
            async with asyncio.timeout(grace_s):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End it at once; its own children see it go and follow."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def last_words(self) -> str:
        """The last line of its log that says something, for the sentence that explains a failure."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _TAIL_BYTES, 0))
                lines = file.read().decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

"""The broker's end of the cleaner's worker process: start it when there is work, talk to it, end it.

Costs nothing until the first job; after a minute without one the process is ended again. A worker that dies
is noticed by the end of its output and raises :class:`WorkerDied` out of the job it had. Used by ``cleaner``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncGenerator
from typing import Final, Protocol

import msgspec

from tidelog.decode_errors import DECODE_ERRORS
from tidelog.errors import TidelogError
from tidelog.storage.cleaner.cleaner_worker import CompactionEvent, event_decoder, run_job
from tidelog.storage.cleaner.compaction import BatchSkipped, CleanedGroup, CompactionJob

_IDLE_S: Final = 60.0
_LINE_LIMIT: Final = 16 * 1024 * 1024
_END_TIMEOUT_S: Final = 5.0

logger = logging.getLogger(__name__)


class WorkerDied(TidelogError):
    """The worker process ended in the middle of a job."""


class CompactionRunner(Protocol):
    """Whoever carries out jobs, one at a time."""

    def run(self, job: CompactionJob) -> AsyncGenerator[CompactionEvent, None]:
        """The groups of a job, then its end or its failure."""

    def kill(self) -> None:
        """Stop working, at once; the job that is running ends with :class:`WorkerDied`."""

    async def close(self) -> None:
        """Stop and let go of everything; may be used again afterwards."""


class InlineRunner:
    """Runs jobs in the calling process, for tests and tools; the loop stands still meanwhile."""

    def __init__(self) -> None:
        self._killed = False

    async def run(self, job: CompactionJob) -> AsyncGenerator[CompactionEvent, None]:
        self._killed = False
        events: list[CompactionEvent] = []
        run_job(job, events.append)
        for event in events:
            yield event
            if self._killed:
                raise WorkerDied("the job was stopped")

    def kill(self) -> None:
        self._killed = True

    async def close(self) -> None:
        return


class CleanerProcess:
    """Runs jobs in ``python -m tidelog.storage.cleaner.cleaner_worker``."""

    def __init__(self, *, idle_s: float = _IDLE_S) -> None:
        self._idle_s = idle_s
        self._process: asyncio.subprocess.Process | None = None
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        return None if self._process is None else self._process.pid

    async def run(self, job: CompactionJob) -> AsyncGenerator[CompactionEvent, None]:
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        finished = False
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            await process.stdin.drain()
            while not finished:
                line = await process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise WorkerDied(await self._last_words(process))
                event = event_decoder.decode(line)
                finished = not isinstance(event, CleanedGroup | BatchSkipped)
                yield event
        except (ConnectionError, *DECODE_ERRORS) as error:
            self.kill()
            raise WorkerDied(await self._last_words(process)) from error
        finally:
            if finished:
                loop = asyncio.get_running_loop()
                self._idle_timer = loop.call_later(self._idle_s, self._end)
            else:
                # Whoever stops listening in the middle must not find the rest of this job in the next.
                self.kill()
                self._process = None
                with contextlib.suppress(asyncio.CancelledError):
                    await process.wait()

    def kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def close(self) -> None:
        process = self._process
        self._end()
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), _END_TIMEOUT_S)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "tidelog.storage.cleaner.cleaner_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LINE_LIMIT,
            )
            logger.debug("started the cleaner's worker, process %d", self._process.pid)
        return self._process

    def _end(self) -> None:
        """Close the worker's input, at which it exits."""
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()

    async def _last_words(self, process: asyncio.subprocess.Process) -> str:
        assert process.stderr is not None
        words = (await process.stderr.read()).decode(errors="replace").strip().splitlines()
        code = await process.wait()
        return f"the cleaner's worker ended with code {code}" + (f": {words[-1]}" if words else "")

"""Runs ``decode_worker`` for a search: started when something is to be decoded, begun anew when it was ended.

The worker is ended by the kernel when a schema or field takes more than it may, or by us when nothing is
heard of it; what it was at then is not decoded, and everything after it goes to a new process. After
``_ENDS`` of them a search decodes nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Self

import msgspec

from tidelog.console.records.decoding.frames import Answer, Bounds, Compile, Decode, Task
from tidelog.console.records.filter_worker import framed

BOUNDS = Bounds(memory_bytes=512 * 1024 * 1024, schema_cpu_s=10.0, field_cpu_s=2.0)
_SILENCE_S = 60.0
"""Beyond any processor time that it may use, also on a busy machine."""
_ENDS = 5
_TOO_MUCH = "decoding it exceeded the memory or time limit"
_GIVEN_UP = f"decoding stopped for this search: {_ENDS} fields or schemas exceeded the limits"


class DecodeProcess:
    """Decodes fields; ``async with`` ends the process."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self._bounds = bounds
        self._process: asyncio.subprocess.Process | None = None
        self._ready: set[str] = set()
        self._schemas: dict[str, Compile] = {}
        self._refused: dict[str, str] = {}
        self._ends = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def add(self, schema: Compile) -> None:
        """A schema that tasks may name."""
        self._schemas.setdefault(schema.key, schema)

    async def answers(self, tasks: Sequence[Task]) -> list[Answer]:
        """One for each task."""
        found: list[Answer] = []
        while len(found) < len(tasks):
            rest = tasks[len(found) :]
            if self._ends >= _ENDS:
                found += [Answer(problem=_GIVEN_UP)] * len(rest)
                break
            if await self._are_ready(dict.fromkeys(each.schema for each in rest if each.schema)):
                await self._decode(rest, found)
        return found

    async def _decode(self, tasks: Sequence[Task], found: list[Answer]) -> None:
        """Append answers; all of them, or up to and with the task that ended the process."""
        refused = [self._refused.get(each.schema, "") for each in tasks]
        sent = [each for each, problem in zip(tasks, refused, strict=True) if not problem]
        if sent and not await self._send(msgspec.msgpack.encode(Decode(sent))):
            await self._end()
            self._ends += 1
            return
        for problem in refused:
            answer = Answer(problem=problem) if problem else await self._answer()
            if answer is None:
                found.append(Answer(problem=_TOO_MUCH))
                return
            found.append(answer)

    async def _are_ready(self, keys: Iterable[str]) -> bool:
        """Compile what is not; False where that ended the process, and with it what was ready before."""
        for key in keys:
            if key in self._ready or key in self._refused:
                continue
            if not await self._send(msgspec.msgpack.encode(self._schemas[key])):
                await self._end()
                self._ends += 1
                return False
            answer = await self._answer()
            if answer is None:
                self._refused[key] = "its schema exceeded the memory or time limit"
                return False
            if answer.problem:
                self._refused[key] = answer.problem
            else:
                self._ready.add(key)
        return True

    async def _answer(self) -> Answer | None:
        """What the process says; None where it has ended, or says nothing and was ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(_SILENCE_S):
                size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
                body = await self._process.stdout.readexactly(size)
            return msgspec.msgpack.decode(body, type=Answer)
        except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
            await self._end()
            self._ends += 1
            return None

    async def _send(self, body: bytes) -> bool:
        """Whether the process has it."""
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",  # modules of the directory that we happen to run in are none of ours
                "-m",
                "tidelog.console.records.decoding.decode_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            body = framed(msgspec.msgpack.encode(self._bounds)) + framed(body)
        else:
            body = framed(body)
        assert self._process.stdin is not None
        try:
            async with asyncio.timeout(_SILENCE_S):
                self._process.stdin.write(body)
                await self._process.stdin.drain()
        except (TimeoutError, ConnectionError):
            return False
        return True

    async def _end(self) -> None:
        process, self._process = self._process, None
        self._ready.clear()
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

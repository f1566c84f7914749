"""Runs a filter in a process of its own, with bounds on its time and memory; see ``filter_worker``.

An expression may be as slow as it likes (a regular expression that never ends, say): the console waits
``BATCH_S`` for each batch, ends the process and says so. How long the process takes to start, on a busy
machine, is no fault of the expression's.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec

from tidelog.console.records.filter_expression import Filter
from tidelog.console.records.filter_worker import Order, framed
from tidelog.console.records.raw import RawRecord
from tidelog.console.refusal import Refusal

BATCH_S = 5.0
_START_S = 60.0
_MEMORY_BYTES = 512 * 1024 * 1024
_CPU_S = 120


class FilterProcess:
    """Filters batches of records; ``async with FilterProcess(text) as chosen``."""

    def __init__(self, text: str) -> None:
        Filter(text)  # a mistake is said before anything is started
        self._text = text
        self._process: asyncio.subprocess.Process | None = None
        self._is_ready = False

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # modules of the directory that we happen to run in are none of ours
            "-m",
            "tidelog.console.records.filter_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await self._send(msgspec.msgpack.encode(Order(self._text, _MEMORY_BYTES, _CPU_S)))
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _end(self) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def chosen(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """Those of ``records`` that match; raises a refusal when the filter takes too much."""
        if not records:
            return []
        try:
            if not self._is_ready:
                async with asyncio.timeout(_START_S):
                    await self._answer()
                self._is_ready = True
            async with asyncio.timeout(BATCH_S):
                await self._send(msgspec.msgpack.encode(records))
                places = await self._answer()
        except TimeoutError:
            raise Refusal(
                f"the filter took more than {BATCH_S:g} s for {len(records)} messages and was "
                "stopped: simplify it",
                422,
                "FILTER_TOO_SLOW",
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Refusal(
                "the filter exceeded the memory or time limit and was stopped: simplify it",
                422,
                "FILTER_TOO_LARGE",
            ) from None
        return [records[at] for at in places]

    async def _answer(self) -> list[int]:
        assert self._process is not None
        assert self._process.stdout is not None
        size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
        return msgspec.msgpack.decode(await self._process.stdout.readexactly(size), type=list[int])

    async def _send(self, body: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(framed(body))
        await self._process.stdin.drain()

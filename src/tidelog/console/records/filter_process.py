"""Runs a filter in a process of its own, with bounds on its time and memory; see ``filter_worker``.

An expression may be as slow as it likes (a regular expression that never ends, say): the console waits
``BATCH_S`` for each batch, ends the process and says so.
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
_MEMORY_BYTES = 512 * 1024 * 1024
_CPU_S = 120


class FilterProcess:
    """Filters batches of records; ``async with FilterProcess(text) as chosen``."""

    def __init__(self, text: str) -> None:
        Filter(text)  # a mistake is said before anything is started
        self._text = text
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tidelog.console.records.filter_worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        await self._send(msgspec.msgpack.encode(Order(self._text, _MEMORY_BYTES, _CPU_S)))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def chosen(self, records: Sequence[RawRecord]) -> list[RawRecord]:
        """Those of ``records`` that match; raises a refusal when the filter takes too much."""
        assert self._process is not None
        assert self._process.stdout is not None
        if not records:
            return []
        try:
            async with asyncio.timeout(BATCH_S):
                await self._send(msgspec.msgpack.encode(records))
                size = int.from_bytes(await self._process.stdout.readexactly(4), "big")
                places = msgspec.msgpack.decode(await self._process.stdout.readexactly(size), type=list[int])
        except TimeoutError:
            raise Refusal(
                f"the filter took more than {BATCH_S:g} s for {len(records)} records and was ended: "
                "make it simpler",
                422,
                "FILTER_TOO_SLOW",
            ) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise Refusal(
                "the filter needed more memory or time than it may and was ended: make it simpler",
                422,
                "FILTER_TOO_LARGE",
            ) from None
        return [records[at] for at in places]

    async def _send(self, body: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(framed(body))
        await self._process.stdin.drain()

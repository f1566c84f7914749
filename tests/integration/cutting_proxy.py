"""A TCP proxy that cuts connections: between client and broker, after so many bytes in either direction."""

from __future__ import annotations

import asyncio
import random
import threading


class CuttingProxy:
    """Listens on loopback for as long as the broker at ``target`` is wanted through it.

    Every connection dies after a random number of bytes, in the middle of whatever is under way, until
    ``cuts_left`` is used up; then connections live.
    """

    def __init__(self, target: str, *, cuts: int, max_bytes: int, seed: int) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._random = random.Random(seed)
        self._max_bytes = max_bytes
        self.cuts_left = cuts
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    def __enter__(self) -> CuttingProxy:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *exc_info: object) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def _start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            there, back = await asyncio.open_connection(*self._target)
        except OSError:
            writer.close()
            return
        budget = [self._random.randrange(1, self._max_bytes) if self.cuts_left > 0 else 1 << 62]
        pipes = [
            asyncio.ensure_future(self._pipe(reader, back, budget)),
            asyncio.ensure_future(self._pipe(there, writer, budget)),
        ]
        try:
            await asyncio.wait(pipes, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pipe in pipes:
                pipe.cancel()
            await asyncio.gather(*pipes, return_exceptions=True)
            for each in (writer, back):
                each.transport.abort()
            self._tasks.discard(task)

    async def _pipe(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, budget: list[int]
    ) -> None:
        while data := await source.read(65_536):
            allowed = data[: budget[0]]
            budget[0] -= len(allowed)
            target.write(allowed)
            await target.drain()
            if len(allowed) < len(data) or budget[0] == 0:
                self.cuts_left -= 1
                return

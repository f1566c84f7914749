"""A network that can be cut and slowed: TCP proxies between brokers, clients and ZooKeeper.

Every listener of a broker, and every broker's way to ZooKeeper, has a proxy, whose address is the one that
others are told. A proxy knows who is at both ends: brokers name themselves in the header of their first
request. Each *way* (from one end to the other) can be cut, so that bytes stay where they are, as packets that
are lost and sent again would, or have a latency and a bandwidth. Connections live through short cuts, or are
reset when a cut is healed.

All of it runs on an event loop in a thread of the test's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field

CLIENT, ZOOKEEPER = "client", "zookeeper"
_CHUNK = 64 * 1024
_QUEUED_CHUNKS = 32
_CLIENT_ID = re.compile(rb"broker-\d+")

Way = tuple[str, str]


@dataclass(slots=True)
class Condition:
    """How it goes from one end to the other."""

    passable: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    bytes_per_s: float | None = None


class Network:
    """All proxies of one cluster."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._thread.start()
        self._conditions: dict[Way, Condition] = {}
        self._connections: set[_Connection] = set()
        self._servers: list[asyncio.Server] = []

    def proxy(self, target_port: int, target: str, source: str | None = None) -> int:
        """The port of a new proxy to ``target``; without ``source``, that is who names itself."""
        reserved = socket.socket()
        reserved.bind(("127.0.0.1", 0))

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await _Connection(self, reader, writer, target, source).run(target_port)

        async def serve() -> None:
            self._servers.append(await asyncio.start_server(accept, sock=reserved))

        self._run(serve())
        return int(reserved.getsockname()[1])

    def cut(self, ways: Iterable[Way]) -> None:
        """Let nothing pass."""

        def cut() -> None:
            for way in ways:
                self.condition(way).passable.clear()

        self._loop.call_soon_threadsafe(cut)

    def heal(self, ways: Iterable[Way], *, reset: bool = False) -> None:
        """Let everything pass again; with ``reset`` only on new connections."""
        healed = set(ways)

        def heal() -> None:
            for connection in list(self._connections):
                if reset and connection.ways & healed:
                    connection.abort()
            for way in healed:
                self.condition(way).passable.set()

        self._loop.call_soon_threadsafe(heal)

    def degrade(self, ways: Iterable[Way], delay_s: float, bits_per_s: float | None) -> None:
        """Slow ways; a delay of 0 and no limit make them as fast as before."""

        def degrade() -> None:
            for way in ways:
                condition = self.condition(way)
                condition.delay_s = delay_s
                condition.bytes_per_s = None if bits_per_s is None else bits_per_s / 8

        self._loop.call_soon_threadsafe(degrade)

    def condition(self, way: Way) -> Condition:
        known = self._conditions.get(way)
        if known is None:
            known = self._conditions[way] = Condition()
            known.passable.set()
        return known

    def close(self) -> None:
        async def end() -> None:
            for server in self._servers:
                server.close()
            for connection in list(self._connections):
                connection.abort()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._run(end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: object) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)  # type: ignore[arg-type]

    def add(self, connection: _Connection) -> None:
        self._connections.add(connection)

    def discard(self, connection: _Connection) -> None:
        self._connections.discard(connection)


class _Connection:
    """One connection from a source, and the one that was made for it to the target."""

    def __init__(
        self,
        network: Network,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target: str,
        source: str | None,
    ) -> None:
        self._network = network
        self._reader = reader
        self._writers = [writer]
        self._target = target
        self._source = source
        self.ways: set[Way] = set()

    async def run(self, target_port: int) -> None:
        self._network.add(self)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._forward(target_port)
        finally:
            self._network.discard(self)
            self.abort()

    def abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _forward(self, target_port: int) -> None:
        first = await self._reader.read(_CHUNK)
        if not first:
            return
        source = self._source
        if source is None:
            found = _CLIENT_ID.search(first[:200])
            source = found[0].decode() if found is not None else CLIENT
        there, back = (source, self._target), (self._target, source)
        self.ways = {there, back}
        # A connection needs packets both ways before anything else does.
        await self._network.condition(there).passable.wait()
        await self._network.condition(back).passable.wait()
        reader, writer = await asyncio.open_connection("127.0.0.1", target_port)
        self._writers.append(writer)
        pumps = [
            asyncio.create_task(self._pump(self._reader, writer, there, first)),
            asyncio.create_task(self._pump(reader, self._writers[0], back, b"")),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way, first: bytes
    ) -> None:
        """Carry bytes one way, in order, each as late as the way makes it."""
        condition = self._network.condition(way)
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_QUEUED_CHUNKS)
        sender = asyncio.create_task(_send(queue, writer, condition))
        try:
            free_s = loop.time()
            data = first or await reader.read(_CHUNK)
            while data and not sender.done():
                now_s = loop.time()
                if condition.bytes_per_s is not None:
                    free_s = max(free_s, now_s) + len(data) / condition.bytes_per_s
                else:
                    free_s = now_s
                await queue.put((free_s + condition.delay_s, data))
                data = await reader.read(_CHUNK)
            # An end is seen where it was put: behind what was sent before it, and not through a cut.
            await queue.put((loop.time(), b""))
            await sender
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)


async def _send(
    queue: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, condition: Condition
) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s, data = await queue.get()
        if due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        await condition.passable.wait()
        if not data:
            return
        writer.write(data)
        await writer.drain()

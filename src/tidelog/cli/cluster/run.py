"""The order of things in ``tidelog cluster start``: ZooKeeper, then all brokers at once; back in that order.

Every broker is ``tidelog start`` in a process of its own. A broker that ends before it is ready ends the
start. One that ends later is reported with the command that restarts it, and the others go on; when no
broker is left, not even one that was restarted with that command, this command ends with its ZooKeeper.
Whatever ends this process, SIGKILL too, ends them all (``tidelog.processes``).
"""

from __future__ import annotations

import asyncio

from tidelog.cli.cluster.layout import ClusterSettings
from tidelog.cli.failure import Failure
from tidelog.cli.foreground import HOST, StopRequests, done_before, is_free
from tidelog.cli.output import complain, is_terminal, remark
from tidelog.cli.zookeeper import ended_servers, start_ensemble
from tidelog.processes.children import Child
from tidelog.processes.zookeeper import ZooKeeperEnsemble

INTERRUPTED = 130
_READY = "Tidelog is ready on "
# Brokers that are killed together are noticed one after the other.
_TOGETHER_S = 1.0
_POLL_S = 1.0
_TRY = """
  Try, in another terminal:

    tidelog cluster describe{server}
    tidelog topics create orders --partitions 6{server}
    tidelog topics describe orders{server}

  Ctrl-C stops the cluster.
"""
_TRY_SECURE = """
  Clients use SASL_SSL. The first user is admin, a super user. Try, in another terminal:

    export TIDELOG_COMMAND_CONFIG={clients}
    tidelog topics create orders --partitions 6
    tidelog users add alice
    tidelog acls add --principal User:alice --producer --topic orders

  Tidelog's and Java's clients, Kafka's tools   {clients}
  librdkafka (confluent-kafka, kcat -F)         {librdkafka}

  Ctrl-C stops the cluster.
"""


class Broker:
    """One broker of the cluster; ``address`` is None until it is ready."""

    def __init__(self, settings: ClusterSettings, broker_id: int) -> None:
        self.id = broker_id
        self.address: str | None = None
        self.child = Child(f"broker {broker_id}", settings.log(broker_id))
        self._started = asyncio.Event()
        self._over = asyncio.Event()
        self._arguments = settings.start_arguments(broker_id)
        self._ready = asyncio.Event()

    async def live(self) -> None:
        """Start, and follow what it says until it ends."""
        try:
            await self.child.start("tidelog", self._arguments)
            self._started.set()
            async for line in self.child.lines():
                if line.startswith(_READY):
                    self.address = line.removeprefix(_READY)
                    self._ready.set()
            await self.child.wait()
        finally:
            for event in (self._started, self._ready, self._over):
                event.set()

    @property
    def port(self) -> int:
        """Its port, once it is ready."""
        return int(str(self.address).rpartition(":")[2])

    async def wait_over(self) -> None:
        """Wait until it has ended."""
        await self._over.wait()

    async def stop(self) -> None:
        """End it in an orderly way, also one that is only being started."""
        await self._started.wait()
        await self.child.stop()

    async def wait_ready(self) -> None:
        """Wait until it serves; fails with its last words if it has ended instead."""
        await self._ready.wait()
        if self.address is None:
            words = self.child.last_words().removeprefix("tidelog start: ").rstrip(".")
            raise Failure(f"broker {self.id} did not start: {words} (log: {self.child.log})")


class LocalCluster:
    """One run of ``tidelog cluster start``."""

    def __init__(self, settings: ClusterSettings) -> None:
        self._settings = settings
        self._ensemble: ZooKeeperEnsemble | None = None
        self._connect = settings.zookeeper or ""
        self._brokers: list[Broker] = []
        self._lives: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Until somebody asks for the end, or no broker is left; returns the exit code."""
        requests = StopRequests()
        try:
            if await done_before(requests.stop, self._start()):
                self._announce()
                await done_before(requests.stop, self._watch())
        finally:
            in_order = await done_before(requests.hurry, self._stop())
            for broker in self._brokers:
                broker.child.kill()
            await asyncio.gather(*self._lives, return_exceptions=True)
            if self._ensemble is not None:
                await asyncio.to_thread(self._ensemble.stop)
        return 0 if in_order else INTERRUPTED

    async def _start(self) -> None:
        if self._settings.zookeeper is None:
            port = self._settings.own_zookeeper_port()
            ports = None if port is None else [port]
            self._ensemble = ZooKeeperEnsemble(self._settings.zookeeper_directory, ports=ports)
            await start_ensemble(self._ensemble)
            self._connect = self._ensemble.connect
        for broker_id in self._settings.broker_ids:
            self._settings.write_properties(broker_id, self._connect)
        self._brokers = [Broker(self._settings, each) for each in self._settings.broker_ids]
        self._lives = [asyncio.create_task(broker.live()) for broker in self._brokers]
        await asyncio.gather(*(broker.wait_ready() for broker in self._brokers))

    def _announce(self) -> None:
        addresses = ",".join(str(broker.address) for broker in self._brokers)
        print(f"zookeeper.connect={self._connect}")
        print(f"bootstrap.servers={addresses}")
        security = self._settings.security
        if security is not None:
            security.tell_clients(addresses)
            print(f"command.config={security.clients}")
        print("ready", flush=True)
        if is_terminal() and security is not None:
            remark(_TRY_SECURE.format(clients=security.clients, librdkafka=security.librdkafka))
        elif is_terminal():
            usual = self._brokers[0].address == f"{HOST}:9092"
            remark(_TRY.format(server="" if usual else f" -b {self._brokers[0].address}"))

    async def _watch(self) -> None:
        """Report each process that ends; fails when no broker is left."""
        zookeeper = asyncio.create_task(self._report_zookeeper_end())
        try:
            await asyncio.gather(*(self._report_end(broker) for broker in self._brokers))
            while self._is_any_left():  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)
        finally:
            zookeeper.cancel()
        raise Failure(
            "no broker is running: run the same `tidelog cluster start` command again to continue "
            f"with the data in {self._settings.directory} (logs: {self._settings.log(1).parent})"
        )

    async def _report_end(self, broker: Broker) -> None:
        await broker.wait_over()
        await asyncio.sleep(_TOGETHER_S)
        code = broker.child.exit_code
        how = "was stopped" if code == 0 else f"exited with code {code}"
        ended = f"broker {broker.id} at {broker.address} {how} (log: {broker.child.log})"
        if self._is_any_left():
            ended += f"; restart it with\n  {self._settings.start_command(broker.id, broker.port)}"
        complain(ended)

    def _is_any_left(self) -> bool:
        """Whether a broker runs: one of this command's own, or one that was restarted by hand."""
        return any(broker.child.is_running or not is_free(broker.port) for broker in self._brokers)

    async def _report_zookeeper_end(self) -> None:
        if self._ensemble is None:
            return
        async for server in ended_servers(self._ensemble):
            complain(
                f"ZooKeeper at {server.address} exited: brokers still serve their partitions, but "
                "cluster metadata cannot change; stop with Ctrl-C and start again (log: "
                f"{server.log_file})"
            )

    async def _stop(self) -> None:
        """All brokers at once, then ZooKeeper: they say goodbye to it."""
        await asyncio.gather(*(broker.stop() for broker in self._brokers))
        if self._ensemble is not None:
            await asyncio.to_thread(self._ensemble.stop)

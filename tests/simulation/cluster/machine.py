"""A machine: its disk, which forgets what was not synced when the power goes, and the lives of its broker.

What is real is the whole of ``Broker``: membership, controller, control, partitions, fetch loops,
coordinators, handlers, logs in files. What is not: sockets (``network``), ZooKeeper (``ensemble``), threads
and time (``virtual_loop``).
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.simulation.virtual_loop import OWNER, Life, LoopClock

from tidelog.broker.app import Broker
from tidelog.broker.composition import with_zookeeper
from tidelog.broker.network.connection_quotas import ConnectionQuotas
from tidelog.config.broker_config import BrokerConfig
from tidelog.config.listeners import Listener
from tidelog.ids import TopicPartition
from tidelog.metadata.store import SharedStore
from tidelog.replication.partition import Partition
from tidelog.storage.directories.log_dirs import LogDirs
from tidelog.storage.disk import Disk
from tidelog.storage.log_dir.log_dir import CLEAN_SHUTDOWN_FILE

if TYPE_CHECKING:
    from tests.simulation.cluster.world import ClusterWorld

logger = logging.getLogger(__name__)

_INDEXES = (".index", ".timeindex")
PORT = 9092


class SimDisk(Disk):
    """Writes files, leaves out the syncing, and remembers how much of each file has been synced."""

    def __init__(self) -> None:
        self._synced: dict[int, int] = {}

    def open(self, path: Any, flags: int, mode: int = 0o777) -> int:  # type: ignore[override]
        fd = os.open(path, flags, mode)
        if flags & os.O_CREAT:
            found = os.fstat(fd)
            if not found.st_size:
                self._synced[found.st_ino] = 0
        return fd

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        found = os.fstat(fd)
        self._synced[found.st_ino] = found.st_size

    def ftruncate(self, fd: int, length: int) -> None:
        os.ftruncate(fd, length)
        number = os.fstat(fd).st_ino
        self._synced[number] = min(self._synced.get(number, 0), length)

    def truncate(self, path: Any, length: int) -> None:
        os.truncate(path, length)
        number = Path(path).stat().st_ino
        self._synced[number] = min(self._synced.get(number, 0), length)

    def sync_path(self, path: Path) -> None:
        found = path.stat()
        self._synced[found.st_ino] = found.st_size

    def lose_power(self, directory: Path, rng: random.Random) -> int:
        """Of what was not synced any part may be gone; gives how many files lost something."""
        lost = 0
        for path in sorted(directory.glob("*/*")):
            if path.suffix in _INDEXES or not path.is_file():
                continue
            found = path.stat()
            synced = min(self._synced.get(found.st_ino, 0), found.st_size)
            if synced == found.st_size or rng.random() < 0.2:
                continue
            lost += 1
            kept = rng.randint(synced, found.st_size) if path.suffix == ".log" else synced
            os.truncate(path, kept)
            if path.suffix == ".log" and rng.random() < 0.3:
                # The length of a file may reach the disk before what is in it.
                os.truncate(path, found.st_size)
        return lost

    def tear(self, directory: Path, rng: random.Random) -> None:
        """A process was killed within a write: the last batch of some logs is there in part."""
        for partition in sorted(each for each in directory.iterdir() if each.is_dir()):
            segments = sorted(partition.glob("*.log"))
            if segments and rng.random() < 0.3:
                with segments[-1].open("r+b") as file:
                    whole = file.read()
                    part = whole[-100:] or b"\0" * 80
                    file.write(part[: rng.randint(1, len(part))])


class SimDoor:
    """Stands in for ``broker.network.Network``: the dispatcher is reached through the simulated network."""

    def __init__(
        self, handler: Any, loop: asyncio.AbstractEventLoop, limits: Any, clock: Any, tls: Any
    ) -> None:
        self._handler = handler
        self._is_open = False
        self.quotas = ConnectionQuotas()

    def open(self, listeners: Sequence[Listener], *_: Any) -> dict[str, int]:
        return {each.name: PORT for each in listeners}

    def start(self, only: Collection[str] | None = None) -> None:
        """Brokers and clients share one listener, so it opens for both when it opens for brokers."""
        life = OWNER.get()
        assert isinstance(life, BrokerLife)
        if not self._is_open:
            self._is_open = True
            life.machine.world.network.listen(life.name, life, self._handler)

    def time_requests(self, request_time: Any) -> None:
        """Requests take no time here."""

    def observe(self, observer: Any) -> None:
        """Nobody counts."""

    def quotas_changed(self) -> None:
        """Nobody is kept out."""

    def stop_requests(self) -> None:
        life = OWNER.get()
        assert isinstance(life, BrokerLife)
        life.machine.world.network.reset(life.name)

    async def drain(self, deadline_s: float) -> None:
        """What is under way has been answered, or its connection is gone."""

    def close(self) -> None:
        self.stop_requests()


def sim_log_dirs(paths: Sequence[Path], options: Any, *, clock: Any) -> LogDirs:
    """The log directories of the broker that is being started, on its machine's disk."""
    life = OWNER.get()
    assert isinstance(life, BrokerLife)
    return LogDirs(paths, options, clock=clock, disk=life.machine.disk)


class BrokerLife(Life):
    """One run of a broker."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.host)
        self.machine = machine
        self.is_ready = False
        self.failure: BaseException | None = None
        self.store: Any = None
        world = machine.world
        config = BrokerConfig(dict(machine.options))
        self.broker = with_zookeeper(config, LoopClock(asyncio.get_running_loop()), self._session)
        self.task = self.begin(self._run(world))

    async def _session(self) -> SharedStore:
        self.store = self.machine.world.ensemble.session()
        found: SharedStore = self.store
        return found

    async def _run(self, world: ClusterWorld) -> None:
        try:
            await self.broker.start()
            _ = self.broker.coordinators
            self.is_ready = True
        except Exception as error:
            self.failure = error
            logger.info("The start failed", exc_info=error)
            world.trace.tell(f"broker {self.machine.broker_id} cannot start: {error!r}")


class Machine:
    """Where one broker lives, again and again."""

    def __init__(self, world: ClusterWorld, broker_id: int, options: Mapping[str, str]) -> None:
        self.world = world
        self.broker_id = broker_id
        self.host = f"broker{broker_id}"
        self.directory = world.directory / str(broker_id)
        self.disk = SimDisk()
        self.life: BrokerLife | None = None
        self.ends: dict[tuple[bytes, TopicPartition], int] = {}
        """Where its logs ended when its last life did."""
        self.is_stopping = False
        """Whether its broker is on its way out, and so out of the in-sync replicas."""
        self._held: dict[Partition, None] = {}
        self.options = {
            **options,
            # On virtual time no step takes any; and who crashes stops no thread.
            "tidelog.loop.step.warn.ms": "0",
            "broker.id": str(broker_id),
            "log.dirs": str(self.directory),
            "listeners": f"PLAINTEXT://{self.host}:{PORT}",
            "zookeeper.connect": "simulated:2181",
        }

    @property
    def is_up(self) -> bool:
        return self.life is not None

    @property
    def broker(self) -> Broker | None:
        """The broker if it has come so far as to hold partitions."""
        life = self.life
        return life.broker if life is not None and hasattr(life.broker, "partitions") else None

    def start(self) -> None:
        """Begin the next life."""
        assert self.life is None
        self.world.network.power_on(self.host)
        self.life = BrokerLife(self)

    def kill(self, *, power: bool = False) -> None:
        """End the life; with ``power`` the machine goes with it, and what was not synced."""
        life, self.life = self.life, None
        assert life is not None
        life.end()
        network = self.world.network
        if power:
            network.power_off(self.host)
        else:
            network.reset(self.host)
        if life.store is not None:
            life.store.stop_hearing()
        self._let_go(life.broker)
        log_dirs = getattr(life.broker, "log_dirs", None)
        if log_dirs is None or not all(each.is_loaded for each in log_dirs.online.values()):
            # It has not come so far as to write anything.
            return
        if power:
            self.disk.lose_power(self.directory, self.world.rng)
        elif not (self.directory / CLEAN_SHUTDOWN_FILE).exists():
            self.disk.tear(self.directory, self.world.rng)

    def _let_go(self, broker: Broker) -> None:
        """What the kernel does with a process that is gone."""
        log_dirs = getattr(broker, "log_dirs", None)
        if log_dirs is None:
            return
        # One that was stopping may have let go of its partitions already.
        self._note_held()
        self._note_ends(broker)
        for log in log_dirs.all_logs():
            log.files.close_handles()
        for log_dir in log_dirs.online.values():
            log_dir.release()

    def end_of(self, topic_id: bytes, name: TopicPartition) -> int:
        """Where a log ends that its broker does not show any more, or not yet again."""
        self._hold()
        self._note(self._held)
        return self.ends.get((topic_id, name), 0)

    def _hold(self) -> None:
        """Keep the partitions of a broker that stops; while it does, the controller may give it others."""
        if self.is_stopping and self.life is not None and hasattr(self.life.broker, "partitions"):
            self._held |= dict.fromkeys(self.life.broker.partitions)

    def _note_held(self) -> None:
        self._note(self._held)
        self._held = {}
        self.is_stopping = False

    def _note_ends(self, broker: Broker) -> None:
        self._note(broker.partitions if hasattr(broker, "partitions") else ())

    def _note(self, partitions: Iterable[Partition]) -> None:
        for partition in partitions:
            self.ends[partition.topic_id, partition.topic_partition] = partition.log.log_end_offset

    async def stop(self, patience_s: float) -> bool:
        """Shut the broker down as SIGTERM does; gives whether it came to an end in time."""
        life = self.life
        assert life is not None
        self.is_stopping = True
        ending = life.begin(life.broker.shut_down())
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        while not ending.done() and loop.time() < until and self.life is life:
            self._hold()
            await asyncio.sleep(0.05)
        if self.life is not life:
            return False
        if not ending.done():
            self.kill()
            return False
        ending.result()
        self._note_held()
        self.life = None
        life.end()
        self.world.network.reset(self.host)
        return True


def substitutes(rng: random.Random, loop: asyncio.AbstractEventLoop) -> dict[str, Any]:
    """What brokers take from around them without being handed it, by the name under which they find it."""
    return {
        "tidelog.broker.app.Network": SimDoor,
        "tidelog.broker.app.LogDirs": sim_log_dirs,
        "tidelog.client._network.retry.time": SimpleNamespace(monotonic=loop.time),
        "tidelog.client._network.retry.random": rng,
        "tidelog.controller.cluster.controller.random": SimpleNamespace(
            Random=lambda: random.Random(rng.random())
        ),
        "tidelog.ids.os": SimpleNamespace(urandom=rng.randbytes),
    }

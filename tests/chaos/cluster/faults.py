"""What is done to a cluster: each fault harms it for the time of a ``with`` block and undoes what it did.

Everything that chance decides comes from the dice that are handed in, so a seed repeats the faults, their
victims and how long they last; what the processes were doing at that instant, it does not.
"""

from __future__ import annotations

import contextlib
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.cluster.brokers import SESSION_MS, ChaosCluster, name_of
from tests.chaos.cluster.network import CLIENT, ZOOKEEPER, Way
from tests.chaos.cluster.replicas import sound_batches
from tests.chaos.damage import append, segments

SESSION_S = SESSION_MS / 1000
STOP_S = 60.0
SLOW_DELAY_S = 0.1
SLOW_BITS_PER_S = 3_000_000


@dataclass(slots=True)
class Fault:
    """Something that was done."""

    kind: str
    victim: str
    started_ms: float
    undone_ms: float = 0.0
    """When the harm was over; the cluster may need longer."""
    over_ms: float = 0.0
    """When the cluster was whole again, or the next fault came."""


@dataclass(slots=True)
class Scene:
    """What a fault needs: a cluster, dice, and whom to harm."""

    cluster: ChaosCluster
    chance: random.Random
    victim: int

    @property
    def victims_name(self) -> str:
        return name_of(self.victim)

    @property
    def others(self) -> list[str]:
        return [name_of(each) for each in self.cluster.brokers if each != self.victim]


Harm = Callable[[Scene], contextlib.AbstractContextManager[object]]


# Processes


@contextlib.contextmanager
def killed(scene: Scene) -> Iterator[None]:
    """SIGKILL; back when the block ends."""
    scene.cluster.brokers[scene.victim].kill()
    yield
    scene.cluster.launch(scene.victim)


@contextlib.contextmanager
def all_killed(scene: Scene) -> Iterator[None]:
    """SIGKILL for every broker at once; what the kernel has of their files is still there."""
    for broker in scene.cluster.brokers.values():
        broker.kill()
    yield
    back = list(scene.cluster.brokers)
    scene.chance.shuffle(back)
    for broker_id in back:
        scene.cluster.launch(broker_id)


@contextlib.contextmanager
def stopped(scene: Scene) -> Iterator[None]:
    """SIGTERM; back when the block ends. One that has only begun to start may die of it."""
    broker = scene.cluster.brokers[scene.victim]
    expected = {0} if broker.is_ready else {0, -signal.SIGTERM}
    broker.send_signal(signal.SIGTERM)
    code = broker.wait(STOP_S)
    assert code in expected, f"{scene.victims_name} ended with {code}:\n{broker.log[-3000:]}"
    yield
    scene.cluster.launch(scene.victim)


@contextlib.contextmanager
def paused(scene: Scene) -> Iterator[None]:
    """SIGSTOP and SIGCONT."""
    broker = scene.cluster.brokers[scene.victim]
    broker.send_signal(signal.SIGSTOP)
    yield
    broker.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def torn(scene: Scene) -> Iterator[None]:
    """A crash of the machine: of what was not synced some is gone, and the rest may be garbled."""
    broker = scene.cluster.brokers[scene.victim]
    broker.kill()
    tear_tails(broker.data_dir, scene.chance)
    yield
    scene.cluster.launch(scene.victim)


@contextlib.contextmanager
def full_disk(scene: Scene) -> Iterator[None]:
    """No log can grow any more; the broker, which has no other directory, gives up."""
    broker = scene.cluster.brokers[scene.victim]
    largest = max((each.stat().st_size for each in broker.data_dir.glob("*/*.log")), default=0)
    limit = largest + scene.chance.randrange(1, 4096)
    _, hard = resource.prlimit(broker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (limit, hard))
    yield
    if broker.alive:
        broker.kill()
    scene.cluster.launch(scene.victim)


@contextlib.contextmanager
def zookeeper_killed(scene: Scene) -> Iterator[None]:
    """The server that leads the ensemble, or the only one."""
    server = scene.cluster.ensemble.leader
    server.kill()
    yield
    server.launch()


def tear_tails(log_dir: Path, chance: random.Random) -> None:
    """Do to every partition's newest segment what a power failure may do to what was not synced."""
    synced = _checkpoint(log_dir / "recovery-point-offset-checkpoint")
    for partition in sorted(each for each in log_dir.iterdir() if each.is_dir()):
        for segment in segments(partition)[-1:]:
            data = segment.read_bytes()
            found = sound_batches(data)
            safe = sum(len(raw) for _, last, raw in found if last < synced.get(partition.name, 0))
            end = sum(len(raw) for _, _, raw in found)
            if end > safe and chance.random() < 0.7:
                with segment.open("r+b") as file:
                    # Mostly little: what the kernel had not written yet of the last moments.
                    file.truncate(end - 1 - chance.randrange(min(end - safe, 4000)))
            if chance.random() < 0.5:
                append(segment, chance.choice([chance.randbytes(100), bytes(200), data[:90]]))


def _checkpoint(path: Path) -> dict[str, int]:
    """``topic-partition`` to offset, of a checkpoint file."""
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    fields = [line.rsplit(" ", 2) for line in lines]
    return {f"{topic}-{partition}": int(offset) for topic, partition, offset in fields}


# The network


def _cut(ways: Callable[[Scene], list[Way]]) -> Harm:
    @contextlib.contextmanager
    def cut(scene: Scene) -> Iterator[None]:
        chosen = ways(scene)
        scene.cluster.network.cut(chosen)
        yield
        scene.cluster.network.heal(chosen, reset=scene.chance.random() < 0.5)

    return cut


def _both(ends: list[str], victim: str) -> list[Way]:
    return [way for end in ends for way in ((end, victim), (victim, end))]


@contextlib.contextmanager
def slow(scene: Scene) -> Iterator[None]:
    """100 ms and 3 Mbit/s between a broker and everybody else."""
    ways = _both([*scene.others, CLIENT, ZOOKEEPER], scene.victims_name)
    scene.cluster.network.degrade(ways, SLOW_DELAY_S, SLOW_BITS_PER_S)
    yield
    scene.cluster.network.degrade(ways, 0.0, None)


@dataclass(frozen=True)
class Kind:
    """A fault by its name, and how long it lasts at least and at most."""

    harm: Harm
    shortest_s: float
    longest_s: float
    only_when_whole: bool = False
    """Whether it is to be done only to a cluster whose replicas are all in sync, as it takes one of them."""
    alone: bool = False
    """Whether nothing else is to be done at the same time."""


KINDS: dict[str, Kind] = {
    "kill -9": Kind(killed, 0.0, 1.5 * SESSION_S),
    "hard bounce": Kind(killed, 0.0, 0.0),
    "clean bounce": Kind(stopped, 0.0, 0.5),
    "short pause": Kind(paused, 0.2, 0.5 * SESSION_S),
    "long pause": Kind(paused, 1.5 * SESSION_S, 2.0 * SESSION_S),
    "all killed": Kind(all_killed, 0.0, SESSION_S, alone=True),
    "torn tail": Kind(torn, 0.0, SESSION_S, only_when_whole=True, alone=True),
    "disk full": Kind(full_disk, 1.0, SESSION_S, only_when_whole=True, alone=True),
    "cut from brokers": Kind(
        _cut(lambda scene: _both(scene.others, scene.victims_name)), 1.0, 2.0 * SESSION_S
    ),
    "deaf to brokers": Kind(
        _cut(lambda scene: [(each, scene.victims_name) for each in scene.others]), 1.0, 2.0 * SESSION_S
    ),
    "mute to brokers": Kind(
        _cut(lambda scene: [(scene.victims_name, each) for each in scene.others]), 1.0, 2.0 * SESSION_S
    ),
    "cut from one broker": Kind(
        _cut(lambda scene: _both([scene.chance.choice(scene.others)], scene.victims_name)),
        1.0,
        3.0 * SESSION_S,
    ),
    "cut from clients": Kind(_cut(lambda scene: _both([CLIENT], scene.victims_name)), 1.0, SESSION_S),
    "session expiry": Kind(
        _cut(lambda scene: _both([ZOOKEEPER], scene.victims_name)), 1.5 * SESSION_S, 2.0 * SESSION_S
    ),
    "isolation": Kind(
        _cut(lambda scene: _both([*scene.others, CLIENT, ZOOKEEPER], scene.victims_name)),
        1.0,
        2.0 * SESSION_S,
    ),
    "slow network": Kind(slow, 3.0, 6.0),
    "ZooKeeper killed": Kind(zookeeper_killed, 0.0, 1.0, alone=True),
}


class Nemesis:
    """Does harm, and keeps a list of what it did."""

    def __init__(self, cluster: ChaosCluster, chance: random.Random) -> None:
        self.faults: list[Fault] = []
        self._cluster = cluster
        self._chance = chance

    def leader_of(self, topic: str, partition: int) -> int:
        """Who leads a partition; anybody if nobody does."""
        leader = self._cluster.state(topic, partition).leader
        return leader if leader in self._cluster.brokers else self.anybody()

    def controller(self) -> int:
        """Who is the controller; anybody if nobody is."""
        found = self._cluster.controller()
        return found if found in self._cluster.brokers else self.anybody()

    def anybody(self) -> int:
        return self._chance.choice(sorted(self._cluster.brokers))

    def harm(self, kind: str, victim: int, *, role: str = "") -> Fault:
        """Do one thing to one broker, for as long as chance has it; it is undone on return."""
        return self._harm({victim: kind}, f"{kind}{f' of {role}' if role else ''}")

    def harm_two(self, kinds: tuple[str, str]) -> Fault:
        """Do different things to two brokers at the same time: two of three replicas, so writes may wait."""
        victims = self._chance.sample(sorted(self._cluster.brokers), 2)
        return self._harm(dict(zip(victims, kinds, strict=True)), "two at once")

    def _harm(self, kinds: dict[int, str], name: str) -> Fault:
        lasts_s = max(
            self._chance.uniform(KINDS[each].shortest_s, KINDS[each].longest_s) for each in kinds.values()
        )
        victims = [
            name_of(victim) if len(kinds) == 1 else f"{kind} of {name_of(victim)}"
            for victim, kind in kinds.items()
        ]
        fault = Fault(name, " and ".join(victims), _now_ms())
        self.faults.append(fault)
        try:
            with contextlib.ExitStack() as harms:
                for victim, kind in kinds.items():
                    harms.enter_context(KINDS[kind].harm(Scene(self._cluster, self._chance, victim)))
                time.sleep(lasts_s)
        finally:
            fault.undone_ms = fault.over_ms = _now_ms()
        return fault

    def kill_client(self, kill: Callable[[], None], name: str) -> None:
        """Let a client be killed, and put it on the list."""
        fault = Fault("kill -9 of a client", name, _now_ms())
        kill()
        fault.undone_ms = fault.over_ms = _now_ms()
        self.faults.append(fault)

    def wait_whole(self, fault: Fault) -> None:
        """Wait until all replicas are in sync again."""
        self._cluster.wait_in_sync()
        fault.over_ms = _now_ms()


def _now_ms() -> float:
    return time.monotonic() * 1000

"""What goes wrong, and what administrators do meanwhile: drawn from the seed, one after the other.

Power losses are drawn only where the cluster promises to survive them. A record that was acknowledged is on
at least two machines, but without ``flush.messages=1`` perhaps on no disk: until the controller has taken a
machine that lost power out of the in-sync replicas it must not come back, nor may others go, as in Kafka
(:attr:`Faults.weak`). With ``flush.messages=1`` any machine may lose power at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from tests.simulation.cluster.clients import Caller
from tests.simulation.cluster.history import History
from tests.simulation.cluster.world import ClusterWorld

from tidelog.controller.controller import MorePartitions
from tidelog.controller.topics import ElectionType, NewTopic
from tidelog.errors import KafkaError
from tidelog.ids import INTERNAL_TOPICS, TopicPartition
from tidelog.metadata.store import Delete
from tidelog.metadata.znodes import znodes
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

_ADMIN_PATIENCE_S = 3.0


class Faults:
    """Draws and does."""

    def __init__(
        self, world: ClusterWorld, history: History, strict: Sequence[str], *, synced: bool, brief: NewTopic
    ) -> None:
        """``strict`` topics keep what they acknowledge; ``synced`` says that all is synced before that."""
        self.world = world
        self.rng = world.rng
        self.history = history
        self.strict = [*strict, *sorted(INTERNAL_TOPICS)]
        self.synced = synced
        self.brief = brief
        self.counts: dict[str, int] = {}
        self._caller = Caller(world, history, "admin")
        self._weak: int | None = None
        self._admins: list[asyncio.Task[Any]] = []
        self._menu: list[tuple[int, str, Callable[[], Awaitable[bool]]]] = [
            (8, "kill", self.kill),
            (4, "power", self.power),
            (12, "start", self.start),
            (4, "stop", self.stop),
            (5, "pause", self.pause),
            (6, "zookeeper", self.zookeeper),
            (4, "depose", self.depose),
            (6, "cut", self.cut),
            (3, "isolate", self.isolate),
            (4, "breaks", self.breaks),
            (2, "slow", self.slow),
            (6, "mend", self.mend),
            (6, "reassign", self.reassign),
            (2, "cancel", self.cancel_reassignments),
            (4, "elect", self.elect),
            (2, "grow", self.grow),
            (3, "recreate", self.recreate),
            (3, "delete records", self.delete_records),
        ]

    async def next(self) -> None:
        """Let one thing happen."""
        weights = [weight for weight, _, _ in self._menu]
        _, name, happen = self.rng.choices(self._menu, weights)[0]
        if await happen():
            self.counts[name] = self.counts.get(name, 0) + 1

    async def settle(self) -> None:
        """Wait for administrators who are not answered yet."""
        await asyncio.gather(*self._admins, return_exceptions=True)

    # Who may be hurt

    @property
    def weak(self) -> int | None:
        """The machine that has lost what others must keep for it, until nobody can count on it.

        That is when it is out of all in-sync replicas and its session is over: until then a leader that has
        not heard of its end may add it to them, as in Kafka.
        """
        if self._weak is not None and not self._counts_on(self._weak):
            self._weak = None
        return self._weak

    def _counts_on(self, broker_id: int) -> bool:
        if self.world.ensemble.tree.find(znodes.broker_path(broker_id)) is not None:
            return True
        states = [self.world.state(name) for name in self._kept()]
        return any(state is not None and broker_id in state.isr for state in states)

    def _kept(self) -> list[TopicPartition]:
        """All partitions, without those of a topic that is on its way out."""
        going = self.world.ensemble.tree.find(znodes.delete_topic_path("brief")) is not None
        topics = [*self.strict, "loose", *([] if going else ["brief"])]
        return [name for topic in topics for name in self.world.partitions(topic)]

    def _victim(self) -> int | None:
        if self.weak is not None or not self.world.up:
            return None
        return self.rng.choice(self.world.up)

    def _may_lose_power(self, broker_id: int) -> bool:
        if self.synced:
            return True
        healthy = {
            life.machine.broker_id
            for life, _ in self.world.brokers()
            if life.is_ready and not life.machine.is_stopping
            if life.held is None and life.store is not None and not life.store.is_cut
        }
        for name in self._kept():
            assigned = self.world.assignment(name.topic)
            if assigned is not None and name.partition in {
                *assigned.adding_replicas,
                *assigned.removing_replicas,
            }:
                return False
            state = self.world.state(name)
            if state is not None and broker_id in state.isr and not healthy & set(state.isr) - {broker_id}:
                return False
        return True

    # Processes and machines

    async def kill(self) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        if self.synced and self.rng.random() < 0.6:
            return await self.power()
        self.world.kill(victim)
        return True

    async def power(self) -> bool:
        victim = self._victim()
        if victim is None or not self._may_lose_power(victim):
            return False
        self.world.kill(victim, power=True)
        if not self.synced:
            self._weak = victim
        return True

    async def start(self) -> bool:
        """A machine that has lost something comes back when the controller has missed it, and not before."""
        ready = [each for each in self.world.down if each != self.weak]
        if not ready:
            return False
        self.world.start(self.rng.choice(ready))
        return True

    async def stop(self) -> bool:
        victim = self._victim()
        if victim is None or not self.world.machines[victim].life.is_ready:  # type: ignore[union-attr]
            return False
        self._begin(self.world.stop(victim))
        return True

    async def pause(self) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        self.world.pause(victim, self.rng.uniform(0.1, 4.0))
        return True

    async def zookeeper(self) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        self.world.cut_zookeeper(victim, self.rng.uniform(0.1, 4.5))
        return True

    async def depose(self) -> bool:
        """Somebody removes the controller's node to have another one elected."""
        if self.weak is not None:
            return False
        node = self.world.ensemble.tree.find(znodes.CONTROLLER)
        if node is not None and self.rng.random() < 0.5:
            # What it says arrives after what its successor says.
            host = f"broker{znodes.decode_controller(node.data)}"
            self.world.network.slow[host] = self.rng.uniform(0.1, 0.4)
        # It is in the middle of something then.
        await self.reassign()
        await asyncio.sleep(self.rng.uniform(0.0, 0.03))
        if self.world.ensemble.tree.find(znodes.CONTROLLER) is None:
            return False
        self.world.trace.tell("depose")
        self.world.ensemble.write([Delete(znodes.CONTROLLER)], 0)
        return True

    # The network

    async def cut(self) -> bool:
        one, other = self.rng.sample(sorted(self.world.machines), 2)
        self.world.trace.tell("cut", one, other)
        cut = self.world.network.cut
        cut.add((f"broker{one}", f"broker{other}"))
        if self.rng.random() < 0.6:
            cut.add((f"broker{other}", f"broker{one}"))
        return True

    async def isolate(self) -> bool:
        victim = self._victim()
        if victim is None:
            return False
        self.world.trace.tell("isolate", victim)
        for other in self.world.machines:
            if other != victim:
                self.world.network.cut.add((f"broker{victim}", f"broker{other}"))
                self.world.network.cut.add((f"broker{other}", f"broker{victim}"))
        return True

    async def breaks(self) -> bool:
        victim = self.rng.choice(sorted(self.world.machines))
        self.world.trace.tell("connections break", victim)
        self.world.network.break_some(f"broker{victim}")
        return True

    async def slow(self) -> bool:
        victim = self.rng.choice(sorted(self.world.machines))
        self.world.trace.tell("slow", victim)
        self.world.network.slow[f"broker{victim}"] = self.rng.uniform(0.05, 0.5)
        return True

    async def mend(self) -> bool:
        self.world.trace.tell("mend")
        self.world.network.mend()
        self.world.network.slow.clear()
        return True

    # Administrators

    def _begin(self, work: Awaitable[Any]) -> None:
        self._admins.append(asyncio.ensure_future(work))

    def _ask(self, what: str, ask: Callable[[Any], Any]) -> bool:
        """Have the controller do something; nobody waits for it."""
        found = self.world.controller()
        if found is None:
            return False
        life, controller = found
        self.world.trace.tell(what)

        async def asked() -> None:
            try:
                await ask(controller)
            except KafkaError as error:
                self.world.trace.note(what, error.code)

        life.begin(asked())
        return True

    def _some_partition(self, topics: Sequence[str]) -> TopicPartition | None:
        found = [name for topic in topics for name in self.world.partitions(topic)]
        return self.rng.choice(found) if found else None

    async def reassign(self) -> bool:
        name = self._some_partition([*self.strict, "brief"])
        if name is None or self.weak is not None:
            # One who has what the weak one has lost may be sent away.
            return False
        machines = sorted(self.world.machines)
        target = tuple(self.rng.sample(machines, self.rng.choice((2, 3, 3))))
        return self._ask(f"reassign {name} to {target}", lambda each: each.reassign({name: target}))

    async def cancel_reassignments(self) -> bool:
        moving = [
            TopicPartition(topic, index)
            for topic in (*self.strict, "brief")
            if (found := self.world.assignment(topic)) is not None
            for index in sorted({*found.adding_replicas, *found.removing_replicas})
        ]
        if not moving:
            return False
        return self._ask(f"cancel {moving}", lambda each: each.reassign(dict.fromkeys(moving)))

    async def elect(self) -> bool:
        loose = self.rng.random() < 0.4
        name = self._some_partition(["loose"] if loose else self.strict)
        if name is None:
            return False
        kind = ElectionType.UNCLEAN if loose else ElectionType.PREFERRED
        return self._ask(f"elect {name} {kind.name}", lambda each: each.elect_leaders([name], kind))

    async def grow(self) -> bool:
        topic = self.rng.choice(["brief", "short"])
        count = len(self.world.partitions(topic))
        if not count or count > 2:
            return False
        more = MorePartitions(topic, count + 1)
        return self._ask(f"grow {topic}", lambda each: each.create_partitions([more]))

    async def recreate(self) -> bool:
        topic_id = self.world.topic_id("brief")
        if topic_id is None:
            return self._ask("create brief", lambda each: each.create_topics([self.brief]))
        return self._ask("delete brief", lambda each: each.delete_topics([topic_id]))

    async def delete_records(self) -> bool:
        name = self._some_partition(["short"])
        leader = None if name is None else self._caller.leader_of(name)
        ends = (
            [] if name is None else [each.partition.log.high_watermark for each in self.world.replicas(name)]
        )
        if name is None or leader is None or not ends:
            return False
        offset = self.rng.randint(0, max(ends))
        self.world.trace.tell("delete records", name, offset)
        self.history.starts[name] = max(self.history.starts.get(name, 0), offset)
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name.topic,
                    partitions=[DeleteRecordsPartition(partition_index=name.partition, offset=offset)],
                )
            ],
            timeout_ms=1000,
        )
        self._begin(self._caller.ask(leader, request, DeleteRecordsResponse))
        return True

"""The coordinator under random requests, zombies, lost markers, refused writes, late commits and crashes.

What must hold, whatever happens:

* a marker says what the committed log says of its transaction, and only partitions of that get one;
* no step leads where it must not, and epochs of a transactional id never go back;
* a producer that was told of an outcome was told the truth;
* once a new producer has begun, none before it adds a partition or ends a transaction;
* the shard is what its log says;
* when everything works again, every decided transaction comes to its end.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.rigs.memory_log import MemoryLog
from tests.unit.coordinator.transaction.scene import ORDERS, FakeMarkers, Scene

from tidelog.coordinator.runtime import Producer
from tidelog.coordinator.stored_record import StoredRecord, encode_key, encode_value
from tidelog.coordinator.transaction import records
from tidelog.coordinator.transaction.markers import MarkerRequest
from tidelog.coordinator.transaction.state import LEGAL_PREDECESSORS, TransactionState
from tidelog.coordinator.transaction.transaction import Transaction
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import TopicPartition
from tidelog.records.record import Record, decode_batch, encode_batch
from tidelog.scheduling.promise import Promise

S = TransactionState
NAMES = ["a", "b"]
REFUSALS = [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.KAFKA_STORAGE_ERROR]

names = st.sampled_from(NAMES)
ages = st.sampled_from([0, 0, 0, 1, 2, 3])
partitions = st.sets(st.sampled_from(ORDERS), min_size=1)


class Logged(NamedTuple):
    """One record of the log."""

    offset: int
    name: str
    transaction: Transaction | None


def read_log(log: MemoryLog, end_offset: int) -> list[Logged]:
    return [entry for batch in log.batches for entry in read_batch(batch) if entry.offset < end_offset]


@lru_cache
def read_batch(batch: bytes) -> list[Logged]:
    found = []
    for record in decode_batch(batch):
        assert record.key is not None
        key = records.SCHEMAS.decode_key(record.key)
        value = records.SCHEMAS.decode_value(key, record.value)
        found.append(Logged(record.offset, *records.decode(StoredRecord(key, value))))
    return found


def begin_at(log: MemoryLog, name: str, producer_id: int, epoch: int) -> None:
    """A transactional id that has been in use for long."""
    transaction = Transaction(
        transactional_id=name, producer_id=producer_id, producer_epoch=epoch, timeout_ms=60_000
    )
    key, value, version = records.encode(transaction, 0)
    assert value is not None
    log.append(encode_batch([Record(timestamp=0, key=encode_key(key), value=encode_value(value, version))]))


class TruthfulMarkers(FakeMarkers):
    """Partitions that look up, for every marker that they take, whether it is true."""

    log: MemoryLog

    def __init__(self, broken: list[str]) -> None:
        super().__init__()
        self._broken = broken

    def _carry_out(self, request: MarkerRequest) -> Promise[dict[TopicPartition, ErrorCode]]:
        decided = [
            found
            for _, _, found in read_log(self.log, self.log.committed_offset)
            if found is not None
            and found.state.is_prepared
            and (found.producer_id, found.producer_epoch) == request[:2]
        ]
        if not decided:
            self._broken.append(f"{request} was never decided")
        elif (decided[-1].state is S.PREPARE_COMMIT) != request.committed:
            self._broken.append(f"{request} is not what was decided")
        elif not set(request.partitions) <= decided[-1].partitions:
            self._broken.append(f"{request} goes to partitions that the transaction has not")
        return super()._carry_out(request)


class TransactionModel(RuleBasedStateMachine):
    """One coordinator, two transactional ids, producers of all ages."""

    @initialize(
        version=st.integers(0, 2),
        autocommit=st.booleans(),
        epochs=st.lists(st.sampled_from([None, 32_762]), min_size=2, max_size=2),
    )
    def start(self, version: int, autocommit: bool, epochs: list[int | None]) -> None:
        log = MemoryLog()
        for number, (name, epoch) in enumerate(zip(NAMES, epochs, strict=True)):
            if epoch is not None:
                begin_at(log, name, number, epoch)
        self.scene = Scene(version, log=log)
        self.client_version = 2 if version == 2 else 0
        self.broken: list[str] = []
        """What must not be, noted by callbacks, whose exceptions others would catch."""
        self.markers = TruthfulMarkers(self.broken)
        self.scene.markers = self.markers
        self.begun: dict[str, Producer] = {}
        """The producer that began last, as it was first told; it may have come to higher epochs since."""
        self.known: dict[str, list[Producer]] = {name: [] for name in NAMES}
        """Every producer id and epoch that a client was ever told."""
        self.restart()
        for name in NAMES:
            self.init(name)
        self.scene.log.autocommit = autocommit

    def restart(self) -> None:
        self.markers.log = self.scene.log
        self.scene.crash()
        self.markers.log = self.scene.log

    # Requests

    @rule(name=names)
    def init(self, name: str) -> None:
        def began(done: Promise[Producer]) -> None:
            if done.error is None:
                self.begun[name] = done.result()
                self.known[name].append(done.result())

        self.scene.init(name).when_done(began)

    @rule(name=names, age=ages)
    def go_on(self, name: str, age: int) -> None:
        """A producer names itself (KIP-360): it stays the same one, with a higher epoch."""
        expected = self._producer(name, age)
        zombie = self._is_zombie(name, expected)

        def check(done: Promise[Producer]) -> None:
            if done.error is None:
                if zombie:
                    self.broken.append(f"{expected} came back to life")
                self.known[name].append(done.result())

        self.scene.init(name, expected=expected).when_done(check)

    @rule(name=names, age=ages, partitions=partitions)
    def add(self, name: str, age: int, partitions: set[TopicPartition]) -> None:
        producer = self._producer(name, age)
        zombie = self._is_zombie(name, producer)

        def check(done: Promise[dict[TopicPartition, ErrorCode]]) -> None:
            if zombie and not any(done.result().values()):
                self.broken.append(f"{producer} added partitions")

        old_client = self.client_version == 0
        self.scene.add(producer, partitions, name, from_client=old_client).when_done(check)

    @rule(name=names, age=ages, commit=st.booleans())
    def end(self, name: str, age: int, commit: bool) -> None:
        producer = self._producer(name, age)
        zombie = self._is_zombie(name, producer)

        def check(done: Promise[Producer]) -> None:
            if done.error is not None:
                return
            if zombie:
                self.broken.append(f"{producer} ended a transaction")
            decision = self._last_decision(name)
            if decision is None or (decision.state is S.PREPARE_COMMIT) != commit:
                self.broken.append(f"{producer} was told of {commit=}, but {decision} was decided")
            if self.client_version == 2:
                self.known[name].append(done.result())

        self.scene.end(producer, commit=commit, version=self.client_version, name=name).when_done(check)

    @rule(name=names, partitions=partitions, commit=st.booleans())
    def transact(self, name: str, partitions: set[TopicPartition], commit: bool) -> None:
        """What a producer in good health does all day."""
        self.add(name, 0, partitions)
        self.end(name, 0, commit)

    def _producer(self, name: str, age: int) -> Producer:
        """What some client believes to be: the latest that anybody was told, or something older."""
        return self.known[name][-1 - age] if age < len(self.known[name]) else Producer(77, 0)

    def _is_zombie(self, name: str, producer: Producer) -> bool:
        """Whether another producer has begun since; ids and epochs both grow."""
        return name in self.begun and producer < self.begun[name]

    def _last_decision(self, name: str) -> Transaction | None:
        committed = read_log(self.scene.log, self.scene.log.committed_offset)
        for entry in reversed(committed):
            if entry.name == name and entry.transaction is not None and entry.transaction.state.is_prepared:
                return entry.transaction
        return None

    # What goes wrong

    @rule(markers=st.sampled_from(["hold", "go on", "release", "release", "lose"]))
    def send_markers(self, markers: str) -> None:
        if markers in ("hold", "go on"):
            self.markers.hold = markers == "hold"
        elif self.markers.held:
            (self.markers.lose if markers == "lose" else self.markers.release)()

    @rule(refused=st.sets(st.sampled_from(ORDERS), max_size=2))
    def refuse_markers(self, refused: set[TopicPartition]) -> None:
        self.markers.codes = dict.fromkeys(refused, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    @rule(code=st.sampled_from(REFUSALS))
    def refuse_next_append(self, code: ErrorCode) -> None:
        self.scene.log.fail_next = KafkaError(code)

    @rule(autocommit=st.booleans())
    def replicate(self, autocommit: bool) -> None:
        self.scene.log.autocommit = autocommit
        self.scene.log.commit()

    @rule(delta_ms=st.sampled_from([100, 1000, 5001, 61_000]))
    def wait(self, delta_ms: int) -> None:
        self.scene.advance(delta_ms)

    @rule(lose=st.booleans())
    def elect(self, lose: bool) -> None:
        """Another replica leads, without what is not committed; or the same one again, with all it has."""
        if lose:
            self.restart()
        else:
            self.scene.epoch += 1
            assert self.scene.coordinator.runtime.load_nowait(0, self.scene.epoch, self.scene.log)

    # What must hold

    @invariant()
    def nothing_is_broken(self) -> None:
        assert not getattr(self, "broken", [])

    @invariant()
    def log_is_legal(self) -> None:
        if not hasattr(self, "scene"):
            return
        last: dict[str, Transaction] = {}
        for _, name, transaction in read_log(self.scene.log, self.scene.log.end_offset):
            assert transaction is not None
            before = last.get(name)
            if before is not None:
                assert before.state in LEGAL_PREDECESSORS[transaction.state]
                assert (before.producer_id, before.producer_epoch) <= (
                    transaction.producer_id,
                    transaction.producer_epoch,
                )
            last[name] = transaction

    @invariant()
    def shard_is_what_its_log_says(self) -> None:
        if not hasattr(self, "scene"):
            return
        said: dict[str, Transaction] = {}
        for _, name, transaction in read_log(self.scene.log, self.scene.log.end_offset):
            assert transaction is not None
            said[name] = transaction
        known = dict(self.scene.shard.transactions)
        assert {name: _as_written(found, self.scene) for name, found in known.items()} == {
            name: _as_written(found, self.scene) for name, found in said.items()
        }

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        scene.log.fail_next = None
        self.markers.codes.clear()
        self.markers.hold = False
        scene.log.autocommit = True
        scene.log.commit()
        while self.markers.held:
            self.markers.release()
        for _ in range(5):
            scene.advance(1000)
        for name, found in scene.shard.transactions.items():
            assert not found.state.is_prepared, name
        self._every_partition_has_its_marker()
        assert not self.broken

    def _every_partition_has_its_marker(self) -> None:
        written = set(self.markers.written)
        for _, _, found in read_log(self.scene.log, self.scene.log.end_offset):
            if found is not None and found.state.is_prepared:
                for name in found.partitions:
                    committed = found.state is S.PREPARE_COMMIT
                    assert (name, found.producer_id, found.producer_epoch, committed) in written


def _as_written(found: Transaction, scene: Scene) -> Transaction:
    found = msgspec.structs.replace(found, last_producer_epoch=-1)
    if scene.image.features["transaction.version"] == 0:
        found = msgspec.structs.replace(found, previous_producer_id=-1, next_producer_id=-1, client_version=0)
    return found


TestTransactionModel = TransactionModel.TestCase
TestTransactionModel.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)

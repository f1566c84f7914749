"""Segments that were cut, overgrown or spoilt while the broker was down.

After an unclean stop a log recovers to exactly its last whole batch. A producer that sends again what was
lost goes on in its sequence, and what it sends twice is recognised.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.chaos import damage
from tests.chaos.amount import times
from tests.chaos.clients import Admin, Refused, Writer, assert_kept, fetch_once, read_from, values, wait_until
from tests.chaos.conftest import StartBroker

from tidelog.errors import ErrorCode
from tidelog.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROUNDS = times(2, 4)
TAILS = times(1, 2)
TORN = "torn"


@pytest.fixture
def broker(broker_at: StartBroker) -> BrokerProcess:
    """A broker that rolls often and checkpoints its recovery points at once."""
    return broker_at(
        log_index_interval_bytes="200",
        log_index_size_max_bytes="120",
        log_flush_offset_checkpoint_interval_ms="10",
    )


@pytest.fixture
def writers(broker: BrokerProcess, chance: random.Random) -> tuple[Writer, Writer]:
    """One for the partition that is damaged, one for its neighbour; both have written a few segments."""
    broker.start()
    Admin(broker.bootstrap).create_topic(TORN, 2)
    pair = Writer(broker.bootstrap, TORN, 0), Writer(broker.bootstrap, TORN, 1)
    for writer in pair:
        write_some(writer, chance, 60)
    return pair


def write_some(writer: Writer, chance: random.Random, batches: int) -> None:
    for _ in range(batches):
        first = len(writer.written)
        count = chance.randrange(1, 6)
        writer.write([b"%d %s" % (first + n, b"." * chance.randrange(100)) for n in range(count)])


def end(broker: BrokerProcess, how: str) -> Path:
    """Let the broker go; gives the directory of the partition to damage."""
    if how == "kill":
        broker.kill()
    else:
        assert broker.stop() == 0
    return broker.data_dir / f"{TORN}-0"


def recovery_point(broker: BrokerProcess) -> int:
    """The checkpointed recovery point of the partition to damage."""
    path = broker.data_dir / "recovery-point-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{TORN} 0 ")), -1)


def last_base_offset(broker: BrokerProcess) -> int:
    return int(damage.segments(broker.data_dir / f"{TORN}-0")[-1].stem)


def take_back(writer: Writer, kept: int) -> list[bytes]:
    """The writer knows that only its first ``kept`` records are there; gives the rest."""
    lost = writer.written[kept:]
    del writer.written[kept:]
    writer.sequence = kept
    return lost


def assert_goes_on(broker: BrokerProcess, writer: Writer, kept: int, chance: random.Random) -> None:
    """Exactly ``kept`` records are there, the lost ones can be sent again, and a repetition is recognised."""
    lost = take_back(writer, kept)
    assert_kept(broker.bootstrap, writer)
    for value in [*lost, b"repeated"]:
        writer.write([value])
    writer.sequence -= 1
    assert writer.written.pop() == b"repeated"
    assert writer.write([b"repeated"]) == len(writer.written) - 1
    write_some(writer, chance, 3)
    assert_kept(broker.bootstrap, writer)


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_cut_segment_ends_at_its_last_whole_batch(
    broker: BrokerProcess, writers: tuple[Writer, Writer], chance: random.Random, how: str
) -> None:
    for _ in range(ROUNDS):
        partition = end(broker, how)
        last = [path for path in damage.segments(partition) if path.stat().st_size][-1]
        damage.cut(last, chance)
        for later in damage.segments(partition):
            if later > last:
                later.unlink()
        kept = sum(map(damage.records_in, damage.segments(partition)))
        broker.start()
        assert_goes_on(broker, writers[0], kept, chance)
        assert_kept(broker.bootstrap, writers[1])


@pytest.mark.parametrize(
    ("how", "tail"),
    [
        *((how, tail) for how in ("kill", "stop") for tail in ("garbage", "zeros", "half a batch")),
        # After a clean stop nobody asks whether a sound batch belongs there, in Kafka either.
        ("kill", "an old batch"),
    ],
)
def test_whatever_follows_the_last_whole_batch_is_cut_off(
    broker: BrokerProcess, writers: tuple[Writer, Writer], chance: random.Random, how: str, tail: str
) -> None:
    for _ in range(TAILS):
        partition = end(broker, how)
        last = damage.segments(partition)[-1]
        first = damage.segments(partition)[0].read_bytes()
        start, stop, _ = damage.whole_batches(first)[0]
        extra = {
            "garbage": chance.randbytes(chance.randrange(1, 5000)),
            "zeros": bytes(chance.randrange(1, 100_000)),
            "half a batch": first[start : chance.randrange(start + 1, stop)],
            "an old batch": first[start:stop],
        }[tail]
        damage.append(last, extra)
        broker.start()
        assert_goes_on(broker, writers[0], len(writers[0].written), chance)
        assert_kept(broker.bootstrap, writers[1])
        if how == "kill":
            assert f"{len(extra)} bytes" in broker.log, "the broker says what it has cut off"


def test_recovery_cuts_at_a_batch_that_is_spoilt(
    broker: BrokerProcess, writers: tuple[Writer, Writer], chance: random.Random
) -> None:
    for _ in range(ROUNDS):
        partition = end(broker, "kill")
        last = [path for path in damage.segments(partition) if path.stat().st_size][-1]
        count = len(damage.whole_batches(last.read_bytes()))
        before = sum(damage.records_in(path) for path in damage.segments(partition) if path < last)
        # Without a recovery point everything is checked, the newest segments too.
        (broker.data_dir / "recovery-point-offset-checkpoint").unlink()
        kept = before + damage.spoil_batch(
            last, chance.randrange(count), chance.choice([8, 10, 16, 17, 23, 70])
        )
        broker.start()
        assert_goes_on(broker, writers[0], kept, chance)
        assert_kept(broker.bootstrap, writers[1])


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("at", [70, 11, 16], ids=["records", "length", "magic"])
def test_what_is_spoilt_below_the_recovery_point_harms_nothing_else(
    broker: BrokerProcess, writers: tuple[Writer, Writer], chance: random.Random, how: str, at: int
) -> None:
    """Nobody looks there at start, in Kafka either; reading it is an error, reading the rest is not."""
    wait_until("the recovery point", lambda: recovery_point(broker) >= last_base_offset(broker))
    partition = end(broker, how)
    files = damage.segments(partition)
    spoilt = files[chance.randrange(len(files) - 2)]
    first = sum(damage.records_in(path) for path in files if path < spoilt)
    behind = first + damage.records_in(spoilt)
    bad = first + damage.spoil_batch(
        spoilt, chance.randrange(len(damage.whole_batches(spoilt.read_bytes()))), at
    )
    broker.start()
    writer = writers[0]
    admin = Admin(broker.bootstrap)
    assert values(read_from(broker.bootstrap, TORN, 0, behind)) == writer.written[behind:]
    for offset in range(bad):
        answer = fetch_once(admin, TORN, 0, offset)
        assert answer.error_code == 0
        assert answer.records
    for offset in range(bad, behind):
        answer = fetch_once(admin, TORN, 0, offset)
        assert answer.error_code in (ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE)
    write_some(writer, chance, 10)
    assert values(read_from(broker.bootstrap, TORN, 0, behind)) == writer.written[behind:]
    assert_kept(broker.bootstrap, writers[1])
    assert "Traceback" not in broker.log


def test_a_gap_in_the_sequence_is_refused_after_a_loss(
    broker: BrokerProcess, writers: tuple[Writer, Writer], chance: random.Random
) -> None:
    """A producer that does not know of the loss must not be told that all is well."""
    partition = end(broker, "kill")
    last = [path for path in damage.segments(partition) if path.stat().st_size][-1]
    with last.open("r+b") as file:
        file.truncate(last.stat().st_size - 1)
    broker.start()
    with pytest.raises(Refused) as refused:
        write_some(writers[0], chance, 1)
    assert refused.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

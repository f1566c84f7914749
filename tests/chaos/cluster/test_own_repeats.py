"""Which repeats are excused, and that all others are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.own_repeats import Epoch, given_up, is_own, own_repeats
from tests.rigs.raw_topic import batch

from tidelog.records.batch import set_base_offset

SKIPPED = (
    "%7|1794945635.104|ERRSEQ|produce-confluent-1#producer-1| [thrd:127.0.0.1:34153/4]: 127.0.0.1:34153/4: "
    "ProduceRequest for orders [2] with 1 message(s) failed due to skipped sequence numbers "
    "(PID{Id:1000,Epoch:0}, base seq 3086 > next seq 3085) caused by previous failed request "
    "(NOT_LEADER_FOR_PARTITION, actions Refresh,MsgNotPersisted, base seq 3085..3085, base msgid 3086, "
    "1ms ago): recovering and retrying\n"
)
PRODUCER = 1000


def test_an_epoch_is_given_up_for_a_batch_that_was_refused_before() -> None:
    assert given_up(SKIPPED + SKIPPED.replace("Epoch:0", "Epoch:1")) == {(PRODUCER, 0), (PRODUCER, 1)}


@pytest.mark.parametrize(
    ("told", "instead"),
    [
        pytest.param("base seq 3085..3085", "base seq 2991..2991", id="another batch was refused"),
        pytest.param("NOT_LEADER_FOR_PARTITION", "NO_ERROR", id="nothing was refused"),
        pytest.param("skipped sequence numbers", "sequence desynchronization", id="another failure"),
    ],
)
def test_no_other_failure_excuses_anything(told: str, instead: str) -> None:
    assert given_up(SKIPPED.replace(told, instead)) == frozenset()


@pytest.mark.parametrize(
    ("epochs", "own"),
    [
        ([(PRODUCER, 0), (PRODUCER, 1)], True),
        ([(PRODUCER, 1), (PRODUCER, 0)], True),
        ([(PRODUCER, 0), (PRODUCER, 0)], False),
        ([(PRODUCER, 1), (PRODUCER, 2)], False),
        ([(PRODUCER, 0), (PRODUCER, 2)], False),
        ([(PRODUCER, 0), (PRODUCER + 1, 1)], False),
        ([(PRODUCER, 0), None], False),
    ],
)
def test_a_repeat_is_its_own_in_the_next_epoch_alone(epochs: list[tuple[int, int] | None], own: bool) -> None:
    told = [None if each is None else Epoch(*each) for each in epochs]
    assert is_own(told, given_up(SKIPPED)) is own


def test_repeats_are_looked_up_in_the_log_and_in_the_trace_of_their_producer(tmp_path: Path) -> None:
    directory = tmp_path / "broker-2" / "orders-1"
    directory.mkdir(parents=True)
    written = []
    for offset, epoch in enumerate((0, 0, 1, 1)):
        made = bytearray(batch(b"-", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=offset % 2))
        set_base_offset(made, 0, offset)
        written.append(bytes(made))
    (directory / "00000000000000000000.log").write_bytes(b"".join(written))
    place = ("orders", 1)
    repeated = {
        "p:0": {(place, 0), (place, 2)},
        "p:1": {(place, 0), (place, 1)},
        "q:0": {(place, 0), (place, 2)},
    }
    log_dirs = [tmp_path / "broker-1", tmp_path / "broker-2"]
    assert own_repeats(repeated, {"p": SKIPPED, "q": ""}, log_dirs) == {"p:0"}
    assert own_repeats(repeated, {}, log_dirs) == set()

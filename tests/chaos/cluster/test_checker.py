"""The checker finds every anomaly that is planted into a sound history, and none in the sound one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.chaos.cluster.administrators import expected_topics
from tests.chaos.cluster.checker import ANOMALIES, FINAL, Checker, Findings
from tests.chaos.cluster.history import (
    ASSIGN,
    COMMIT,
    CREATE,
    DELETE,
    FAIL,
    INFO,
    INVOKE,
    OK,
    POLL,
    SEND,
    TXN,
    Event,
    HistoryFile,
    acknowledged,
    read_history,
)

Planted = list[tuple[str, str, str, str, list[tuple[str, int, int, str]]]]


def at(offset: int, value: str, topic: str = "in") -> tuple[str, int, int, str]:
    return topic, 0, offset, value


def sent(value: str, offset: int | None) -> Planted:
    """A send, acknowledged unless its offset is None."""
    events: Planted = [("p", INVOKE, SEND, value, [at(-1, value)])]
    if offset is not None:
        events.append(("p", OK, SEND, value, [at(offset, value)]))
    return events


def polled(reader: str, *records: tuple[str, int, int, str]) -> Planted:
    return [(reader, OK, POLL, "", list(records))]


def transacted(name: str, values: list[str], outcome: str, *, asked: bool = True) -> Planted:
    events: Planted = [("t", INVOKE, TXN, name, [at(-1, value, "out") for value in values])]
    if asked:
        events.append(("t", INVOKE, COMMIT, name, []))
    return [*events, ("t", outcome, TXN, name, [at(-1, value, "out") for value in values])]


def check(planted: Planted, *, copies: bool = False) -> Findings:
    checker = Checker((Event(float(n), *event) for n, event in enumerate(planted)), {"g": ["m1", "m2"]})
    findings = checker.check()
    if copies:
        checker.check_copies("in", "out")
    return {name: found for name, found in findings.items() if found}


SOUND = [
    *sent("p:0", 0),
    *sent("p:1", 1),
    *sent("p:2", None),
    *polled("r", at(0, "p:0"), at(1, "p:1")),
    *transacted("a", ["p:0|a", "p:1|a"], OK),
    *transacted("b", ["p:2|b"], FAIL),
    *transacted("c", ["p:2|c"], INFO),
    *polled("s", at(0, "p:0|a", "out"), at(1, "p:1|a", "out")),
    *polled(FINAL, at(0, "p:0"), at(1, "p:1"), at(5, "p:2"), at(0, "p:0|a", "out"), at(1, "p:1|a", "out")),
    *polled(FINAL, at(4, "p:2|c", "out")),
]


def test_a_sound_history_has_no_anomalies() -> None:
    assert check(SOUND, copies=True) == {}


PLANTED: list[tuple[str, Planted]] = [
    ("lost write", [*sent("p:0", 0), *sent("p:1", 1), *polled(FINAL, at(1, "p:1"))]),
    ("lost write", [*transacted("a", ["p:0|a"], OK), *polled(FINAL)]),
    ("unseen write", [*sent("p:0", 0), *sent("p:1", 1), *polled(FINAL, at(0, "p:0"))]),
    ("inconsistent offset", [*SOUND, *sent("p:9", 1)]),
    ("duplicate", [*SOUND, *polled(FINAL, at(6, "p:1"))]),
    ("phantom", [*SOUND, *polled(FINAL, at(6, "nobody:1"))]),
    ("aborted read", [*SOUND, *polled("q", at(2, "p:2|b", "out"))]),
    ("aborted read", [*transacted("a", ["p:0|a"], FAIL, asked=False), *polled("q", at(0, "p:0|a", "out"))]),
    ("precommitted read", [*polled("q", at(0, "p:0|a", "out")), *transacted("a", ["p:0|a"], OK)]),
    ("torn transaction", [*transacted("a", ["x|a", "y|a"], INFO), *polled(FINAL, at(0, "x|a", "out"))]),
    ("poll skip", [*SOUND, *polled("q", at(0, "p:0")), *polled("q", at(5, "p:2"))]),
    ("poll skip", [*SOUND, *polled("q", at(1, "p:1"))]),
    ("poll skip", [*SOUND, *polled("m1", at(0, "p:0"))]),
    ("nonmonotonic poll", [*SOUND, *polled("q", at(0, "p:0"), at(1, "p:1")), *polled("q", at(0, "p:0"))]),
    ("out-of-order write", [*sent("p:0", 1), *sent("p:1", 0), *polled(FINAL, at(0, "p:1"), at(1, "p:0"))]),
]  # fmt: skip


@pytest.mark.parametrize(("anomaly", "planted"), PLANTED)
def test_a_planted_anomaly_is_found(anomaly: str, planted: Planted) -> None:
    assert anomaly in check(planted)


def test_what_was_not_copied_and_what_was_copied_twice_is_found() -> None:
    twice = [*transacted("d", ["p:0|d"], OK), *polled(FINAL, at(6, "p:0|d", "out"))]
    assert set(check([*SOUND, *twice], copies=True)) == {"duplicate"}
    missing = [*sent("p:3", 6), *polled(FINAL, at(6, "p:3"))]
    assert set(check([*SOUND, *missing], copies=True)) == {"not copied"}


def test_every_anomaly_has_been_planted() -> None:
    assert {anomaly for anomaly, _ in PLANTED} | {"not copied"} == set(ANOMALIES)


def test_a_member_may_begin_again_where_its_group_has_committed_but_not_behind_it() -> None:
    both: Planted = [
        *SOUND,
        ("m1", OK, ASSIGN, "", [at(-1, "")]),
        *polled("m1", at(0, "p:0"), at(1, "p:1")),
        ("m2", OK, ASSIGN, "", [at(-1, "")]),
        *polled("m2", at(1, "p:1"), at(5, "p:2")),
    ]
    assert check(both) == {}
    assert set(check([*both[:-1], *polled("m2", at(5, "p:2"))])) == set()
    assert set(check([*both, *sent("p:3", 6), *polled(FINAL, at(6, "p:3"))])) == {"poll skip"}


def test_a_history_is_read_back_as_it_was_written_without_a_torn_last_line(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / "p.jsonl", "p")
    file.add(INVOKE, SEND, "p:0", [at(-1, "p:0")])
    file.add(OK, SEND, "p:0", [at(0, "p:0")])
    file.close()
    with (tmp_path / "p.jsonl").open("a") as torn:
        torn.write('[1,"p","ok","se')
    events = read_history(tmp_path)
    assert [(event.kind, event.records) for event in events] == [
        (INVOKE, [at(-1, "p:0")]),
        (OK, [at(0, "p:0")]),
    ]
    assert acknowledged(events) == 1


def test_a_topic_is_expected_as_its_last_acknowledged_change_left_it() -> None:
    def outcome(*steps: tuple[str, str]) -> bool | None:
        events = [Event(n, "a", kind, operation, "t", []) for n, (kind, operation) in enumerate(steps)]
        return expected_topics(events).get("t")

    assert outcome((INVOKE, CREATE), (OK, CREATE)) is True
    assert outcome((OK, CREATE), (INVOKE, DELETE), (OK, DELETE)) is False
    assert outcome((OK, CREATE), (INVOKE, DELETE)) is None
    assert outcome((OK, CREATE), (INVOKE, DELETE), (INFO, DELETE), (INVOKE, CREATE), (OK, CREATE)) is True
    assert outcome((OK, CREATE), (INVOKE, CREATE), (INFO, CREATE)) is True
    assert outcome((OK, DELETE), (INVOKE, CREATE), (INFO, CREATE)) is None

"""`tidelog deadletters` as a person runs it, on a topic of letters that pipelines and others have written."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.command_line import CommandLine
from tests.integration.pipeline_traffic import read_all

from tidelog import ErrorCode, Producer
from tidelog.cli.deadletters import redriving
from tidelog.client import Admin, NewTopic
from tidelog.spark.dead_letters.letter import (
    HEADERS,
    LEFT_OUT,
    REDRIVEN,
    SEAL,
    SEALED,
    WHOLE,
    Place,
    letter_key,
    seal_of,
)
from tidelog.spark.dead_letters.letter_reader import LetterFilter, LetterReader
from tidelog.spark.dead_letters.redrive import (
    Left,
    OriginalRecords,
    Plan,
    Redrive,
    Rules,
    Sending,
    marks_topic,
    read_marks,
)
from tidelog.testing.broker_process import BrokerProcess
from tidelog_rewards.phones.phone_keys import PhoneKey, PhoneKeys, ensure_keys, random_keys
from tidelog_rewards.phones.phone_tokens import PhoneTokens

TIMES_MS = itertools.count(1_700_000_000_000, 1000)
RECORD_MS = 1_690_000_000_123


@pytest.fixture(scope="module")
def own_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with BrokerProcess(tmp_path_factory.mktemp("letters") / "data") as broker:
        yield broker.bootstrap


@pytest.fixture
def tidelog(own_bootstrap: str) -> CommandLine:
    return CommandLine(own_bootstrap)


class Box:
    """A topic of letters of its own, and a topic of events."""

    def __init__(self, bootstrap: str, name: str) -> None:
        self.bootstrap = bootstrap
        self.letters, self.events = f"{name}-letters", f"{name}-events"
        with Admin(bootstrap_servers=bootstrap) as admin:
            kept: dict[str, str | None] = {"retention.ms": "-1"}
            topics = [NewTopic(self.letters, 1, configs=kept), NewTopic(self.events, 3, configs=kept)]
            for made in admin.create_topics(topics):
                made.raise_for_error()

    def write(
        self,
        offset: int,
        *,
        pipeline: str = "earnings",
        code: str = "not-json",
        reason: str = "not a JSON object",
        key: bytes | None = b"k",
        value: bytes | None = b"{",
        headers: tuple[tuple[str, bytes | None], ...] = (),
        carried: bytes = WHOLE,
        topic: str | None = None,
    ) -> None:
        """A letter of a pipeline about the record at an offset of partition 1."""
        place = (topic or self.events, 1, offset)
        told = [str(each).encode() for each in (pipeline, *place, RECORD_MS, code, reason)]
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            producer.send(
                self.letters,
                value,
                letter_key(pipeline, place, code),
                timestamp_ms=next(TIMES_MS),
                headers=[*zip(HEADERS, (*told, carried, key), strict=True), *headers],
            ).result(30)

    def of(self, *arguments: str) -> tuple[str, ...]:
        return (*arguments, "--letters", self.letters)


@pytest.fixture
def box(own_bootstrap: str, topic_name: Callable[[], str]) -> Box:
    return Box(own_bootstrap, topic_name())


def test_a_record_is_one_row_for_each_reason_however_many_letters_there_are(
    tidelog: CommandLine, box: Box
) -> None:
    box.write(7)
    box.write(7, pipeline="collect")
    box.write(7)
    box.write(7, code="missing:ip", reason="field ip: is missing")
    box.write(9, pipeline="collect")
    found = tidelog.json(*box.of("deadletters", "list"))
    assert [(each["offset"], each["code"], each["pipelines"], each["letters"]) for each in found] == [
        (7, "not-json", ["collect", "earnings"], 3),
        (7, "missing:ip", ["earnings"], 1),
        (9, "not-json", ["collect"], 1),
    ]
    assert (found[0]["letter"], found[0]["topic"], found[0]["partition"]) == ("0:2", box.events, 1)
    assert (found[0]["timestamp"], found[0]["redriven"]) == (RECORD_MS, None)


def test_letters_are_chosen_by_topic_pipeline_reason_time_and_number(tidelog: CommandLine, box: Box) -> None:
    for offset in range(6):
        box.write(offset, pipeline=("collect", "earnings")[offset % 2], code=f"missing:f{offset},type:ip")

    def offsets(*options: str) -> list[int]:
        return [each["offset"] for each in tidelog.json(*box.of("deadletters", "list"), *options)]

    times = [each["refused_at"] for each in tidelog.json(*box.of("deadletters", "list"))]
    assert offsets("--pipeline", "collect") == [0, 2, 4]
    assert offsets("--reason", "missing:f3") == [3]
    assert offsets("--reason", "type") == offsets("--topic", box.events) == [0, 1, 2, 3, 4, 5]
    assert offsets("--topic", "elsewhere") == []
    assert offsets("--since", str(times[2]), "--until", str(times[4])) == [2, 3]
    assert offsets("--limit", "2") == [4, 5]
    assert offsets("--limit", "0") == [0, 1, 2, 3, 4, 5]


def test_a_letter_is_shown_whole_and_harmless(tidelog: CommandLine, box: Box) -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\nline"
    box.write(
        3,
        pipeline=hostile,
        reason=f"field ip: '{hostile}' is not",
        key=hostile.encode(),
        value=b"\xff\x1b[2J",
        headers=(("trace", b"1"), (hostile, b"\x1b[31m"), ("trace", None)),
    )
    code, text = tidelog.on_terminal(*box.of("deadletters", "show", "0:0"))
    assert code == 0, text
    assert "\x1b" not in text
    assert "\x07" not in text
    assert r"\x1b]0;owned\x07" in text
    assert "base64:/xtbMko=" in text
    code, table = tidelog.on_terminal(*box.of("deadletters", "list"))
    assert code == 0, table
    assert "\x1b" not in table
    assert "\x07" not in table
    found = tidelog.json(*box.of("deadletters", "show", "0:0"))
    assert found["record"] == {
        "topic": box.events,
        "partition": 1,
        "offset": 3,
        "timestamp": RECORD_MS,
        "key": hostile,
        "value_base64": "/xtbMko=",
        "headers": [
            {"key": "trace", "value": "1"},
            {"key": hostile, "value": "\x1b[31m"},
            {"key": "trace", "value": None},
        ],
    }
    assert "has no letter 0:99" in tidelog.refusal(*box.of("deadletters", "show", "0:99"))
    assert tidelog(*box.of("deadletters", "show", "15")).returncode == 2


def test_a_record_is_sent_again_once_as_it_was(tidelog: CommandLine, box: Box) -> None:
    own = (("trace", b"\xff"), ("trace", None), ("a", b""))
    box.write(5, key=b"\xfe", value=b"\x00\xff", headers=own)
    box.write(5, pipeline="collect", key=b"\xfe", value=b"\x00\xff", headers=own)
    box.write(6, key=None, value=None)
    dry = tidelog.json(*box.of("deadletters", "redrive", "--all", "--dry-run"))
    assert [(each["offset"], each["to"], each["times"]) for each in dry["to_send"]] == [
        (5, box.events, 1),
        (6, box.events, 1),
    ]
    assert read_all(box.bootstrap, box.events) == []
    done = tidelog.json(*box.of("deadletters", "redrive", "--all"))
    assert done == {
        "dry_run": False,
        "sent": {box.events: 2},
        "left": {"sent_before": 0, "too_often": 0, "same_record": 1, "gone": 0},
    }
    first, second = read_all(box.bootstrap, box.events)
    assert (first.key, first.value, first.partition, first.timestamp) == (b"\xfe", b"\x00\xff", 1, RECORD_MS)
    assert first.headers == (*own, (REDRIVEN, b"1"))
    assert (second.key, second.value, second.headers) == (None, None, ((REDRIVEN, b"1"),))
    again = tidelog.json(*box.of("deadletters", "redrive", "--all"))
    assert (again["sent"], again["left"]["sent_before"]) == ({}, 3)
    assert len(read_all(box.bootstrap, box.events)) == 2
    shown = tidelog.json(*box.of("deadletters", "list"))
    assert [each["redriven"]["times"] for each in shown] == [1, 1]
    asked = tidelog.json(*box.of("deadletters", "redrive", "0:2", "--again"))
    assert asked["sent"] == {box.events: 1}
    assert read_all(box.bootstrap, box.events)[-1].headers == ((REDRIVEN, b"2"),)


def test_a_record_that_is_refused_every_time_stays_in_the_end(tidelog: CommandLine, box: Box) -> None:
    sent = []
    for offset in range(5):
        # A pipeline writes the next letter with the headers that the record was sent with.
        carried = read_all(box.bootstrap, box.events)[-1].headers if offset else (("trace", b"1"),)
        box.write(offset, headers=tuple(carried))
        sent.append(tidelog.json(*box.of("deadletters", "redrive", "--all"))["sent"])
    assert sent == [{box.events: 1}] * 3 + [{}] * 2
    assert [dict(each.headers)[REDRIVEN] for each in read_all(box.bootstrap, box.events)] == [
        b"1",
        b"2",
        b"3",
    ]
    more = tidelog.json(*box.of("deadletters", "redrive", "0:4", "--max-redrives", "4"))
    assert more["sent"] == {box.events: 1}


def test_another_topic_and_a_choice_of_letters(tidelog: CommandLine, box: Box) -> None:
    for offset in range(4):
        box.write(offset, code=("not-json", "tombstone")[offset % 2])
    refused = tidelog.refusal(*box.of("deadletters", "redrive", "--all", "--to", f"{box.events}-gone"))
    assert "is not there: create it, or name another one with --to" in refused
    with Admin(bootstrap_servers=box.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{box.events}-mended", 1)])[0].raise_for_error()
    chosen = box.of("deadletters", "redrive", "--reason", "tombstone", "--to", f"{box.events}-mended")
    assert tidelog.json(*chosen, "--limit", "1")["sent"] == {f"{box.events}-mended": 1}
    assert tidelog.json(*chosen)["sent"] == {f"{box.events}-mended": 1}
    for wrong in ([], ["--all", "0:1"], ["--all", "--to", box.letters]):
        assert tidelog(*box.of("deadletters", "redrive"), *wrong).returncode == 2


def test_what_a_redrive_that_died_had_not_committed_is_sent_by_the_next_one(
    tidelog: CommandLine, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidelog.spark.dead_letters.redrive.TRANSACTION_RECORDS", 2)
    for offset in range(5):
        box.write(offset)
    options = {"bootstrap.servers": box.bootstrap}
    with contextlib.ExitStack() as died:
        reader = died.enter_context(LetterReader(options, box.letters))
        redrive = died.enter_context(Redrive(options, box.letters))
        sendings = redrive.send(
            Plan(Rules(), redrive.marks, OriginalRecords(options)).sendings(reader.letters())
        )
        assert [next(sendings).letter.offset for _ in range(2)] == [0, 1]
        # It dies with the next records written, and not committed.
        monkeypatch.setattr(Producer, "commit_transaction", _die)
        with pytest.raises(KeyboardInterrupt):
            next(sendings)
        monkeypatch.undo()
        done = tidelog.json(*box.of("deadletters", "redrive", "--all"))
    assert (done["sent"], done["left"]["sent_before"]) == ({box.events: 3}, 2)
    assert len(read_all(box.bootstrap, box.events)) == 5
    assert len(read_marks(options, box.letters)) == 5


def _die(_: Producer) -> None:
    raise KeyboardInterrupt


def test_of_two_redrives_the_later_one_sends(tidelog: CommandLine, box: Box) -> None:
    box.write(0)
    options = {"bootstrap.servers": box.bootstrap}
    with LetterReader(options, box.letters) as reader, Redrive(options, box.letters) as first:
        sendings = list(Plan(Rules(), first.marks, OriginalRecords(options)).sendings(reader.letters()))
        assert tidelog.json(*box.of("deadletters", "redrive", "--all"))["sent"] == {box.events: 1}
        with pytest.raises(Exception, match=f"another redrive of {box.letters} has begun"):
            list(first.send(sendings))
    assert len(read_all(box.bootstrap, box.events)) == 1


def test_a_record_that_is_refused_by_the_broker_is_named_and_nothing_is_marked(
    tidelog: CommandLine, box: Box
) -> None:
    with Admin(bootstrap_servers=box.bootstrap) as admin:
        narrow = NewTopic(f"{box.events}-narrow", 1, configs={"max.message.bytes": "200"})
        admin.create_topics([narrow])[0].raise_for_error()
    box.write(0, value=b"x")
    box.write(1, value=bytes(range(256)))
    said = tidelog.refusal(*box.of("deadletters", "redrive", "--all", "--to", f"{box.events}-narrow"))
    assert "the record of letter 0:1 could not be written" in said
    assert read_marks({"bootstrap.servers": box.bootstrap}, box.letters) == {}
    assert read_all(box.bootstrap, f"{box.events}-narrow") == []


def test_a_record_too_large_for_its_letter_is_read_where_it_was(tidelog: CommandLine, box: Box) -> None:
    with Producer(bootstrap_servers=box.bootstrap) as producer:
        producer.send(
            box.events, b"large", b"u", partition=1, headers={"trace": b"1"}, timestamp_ms=RECORD_MS
        ).result(30)
        # As in a topic that was made anew: not the record that was refused.
        producer.send(box.events, b"another", b"u", partition=1, timestamp_ms=RECORD_MS + 1).result(30)
    box.write(0, key=None, value=None, carried=LEFT_OUT)
    box.write(1, key=None, value=None, carried=LEFT_OUT)
    box.write(5, key=None, value=None, carried=LEFT_OUT)
    assert "too large for a letter" in tidelog.ok(*box.of("deadletters", "show", "0:0"))
    done = tidelog.json(*box.of("deadletters", "redrive", "--all"))
    assert (done["sent"], done["left"]["gone"]) == ({box.events: 1}, 2)
    sent = read_all(box.bootstrap, box.events)[-1]
    assert (sent.key, sent.value, sent.partition) == (b"u", b"large", 1)
    assert sent.headers == (("trace", b"1"), (REDRIVEN, b"1"))


def test_a_record_too_large_for_its_letter_that_is_refused_every_time_stays_in_the_end(
    tidelog: CommandLine, box: Box
) -> None:
    with Producer(bootstrap_servers=box.bootstrap) as producer:
        sent_before = {REDRIVEN: b"3"}
        producer.send(box.events, b"large", partition=1, headers=sent_before, timestamp_ms=RECORD_MS).result(
            30
        )
    box.write(0, key=None, value=None, carried=LEFT_OUT)
    done = tidelog.json(*box.of("deadletters", "redrive", "--all"))
    assert (done["sent"], done["left"]["too_often"]) == ({}, 1)
    more = tidelog.json(*box.of("deadletters", "redrive", "--all"), "--max-redrives", "4")
    assert more["sent"] == {box.events: 1}
    assert read_all(box.bootstrap, box.events)[-1].headers == ((REDRIVEN, b"4"),)


def test_a_seal_that_the_keys_do_not_open_keeps_no_other_letter_from_being_sent(
    tidelog: CommandLine, box: Box, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    taken_out = PhoneKeys([PhoneKey("old", datetime(1970, 1, 1, tzinfo=UTC), b"1" * 32)])
    there, gone, another = (PhoneTokens(keys, "CN") for keys in (ensure_keys(file), taken_out, random_keys()))

    def seal(phones: PhoneTokens, offset: int) -> bytes:
        place = Place(box.events, 1, offset)
        return seal_of((b"k", b"138 1234 5678", []), place, phones, RECORD_MS * 1000)

    with Producer(bootstrap_servers=box.bootstrap) as producer:
        producer.send(box.events, b"139 1234 5678", partition=1, timestamp_ms=RECORD_MS).result(30)
    # The first record is where it was.
    for offset, sealed in [
        (0, seal(gone, 0)),
        (90, seal(gone, 90)),
        (91, seal(another, 91)),
        (92, b"forged"),
        (93, seal(there, 93)),
    ]:
        box.write(offset, value=b"tel_", carried=SEALED, headers=((SEAL, sealed),))
    done = tidelog.json(*box.of("deadletters", "redrive", "--all"), "--phone-keys", str(file))
    assert (done["sent"], done["left"]["gone"]) == ({box.events: 2}, 3)
    values = [each.value for each in read_all(box.bootstrap, box.events)]
    assert values == [b"139 1234 5678", b"139 1234 5678", b"138 1234 5678"]


def test_a_letter_that_was_copied_opens_no_record_into_another_topic(
    tidelog: CommandLine, box: Box, tmp_path: Path
) -> None:
    file = tmp_path / "keys.toml"
    phones = PhoneTokens(ensure_keys(file), "CN")
    seal = seal_of((b"k", b"138 1234 5678", []), Place(box.events, 1, 5), phones, RECORD_MS * 1000)
    with Admin(bootstrap_servers=box.bootstrap) as admin:
        admin.create_topics([NewTopic(f"{box.events}-own", 3)])[0].raise_for_error()
    for topic in (f"{box.events}-own", box.events):
        box.write(5, value=b"tel_", carried=SEALED, headers=((SEAL, seal),), topic=topic)
    keys = ("--phone-keys", str(file))
    said = tidelog.refusal(*box.of("deadletters", "show", "0:0"), *keys)
    assert "has the seal of another record" in said
    assert "138" in tidelog.ok(*box.of("deadletters", "show", "0:1"), *keys)
    done = tidelog.json(*box.of("deadletters", "redrive", "--all"), *keys)
    assert (done["sent"], done["left"]["gone"]) == ({box.events: 1}, 1)
    assert read_all(box.bootstrap, f"{box.events}-own") == []


def test_a_plan_that_is_shown_holds_no_records(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.write(0, value=bytes(1000), headers=(("trace", b"1"),))
    shown: list[Sending] = []

    def show(sendings: list[Sending], left: Left, *, json: bool) -> None:
        shown.extend(sendings)

    monkeypatch.setattr(redriving, "_show_plan", show)
    everything = redriving.Wanted((), LetterFilter())
    options = {"bootstrap.servers": box.bootstrap}
    redriving.redrive(options, box.letters, everything, Rules(), None, dry_run=True, json=True)
    assert [each.letter for each in shown] == [each.letter.without_record for each in shown]
    assert [(each.letter.place, each.times) for each in shown] == [(Place(box.events, 1, 0), 1)]


def test_a_mark_that_anybody_has_written_stops_nothing(tidelog: CommandLine, box: Box) -> None:
    box.write(0)
    with Admin(bootstrap_servers=box.bootstrap) as admin:
        admin.create_topics([NewTopic(marks_topic(box.letters), 1)])[0].raise_for_error()
    with Producer(bootstrap_servers=box.bootstrap) as producer:
        mark = b'{"times": 1, "to": "t", "at_ms": 1}'
        producer.send(marks_topic(box.letters), mark, b"t/" + b"9" * 5000 + b"/1").result(30)
    assert [each["redriven"] for each in tidelog.json(*box.of("deadletters", "list"))] == [None]
    assert tidelog.json(*box.of("deadletters", "show", "0:0"))["redriven"] is None
    assert tidelog.json(*box.of("deadletters", "redrive", "--all"))["sent"] == {box.events: 1}


def test_other_records_of_the_topic_are_said_to_be_no_letters(tidelog: CommandLine, box: Box) -> None:
    with Producer(bootstrap_servers=box.bootstrap) as producer:
        producer.send(box.letters, b"hello")
    # No topic can be called so, and no mark could name it: it would be sent again each time.
    box.write(0, topic="a/b")
    sent = tidelog.json(*box.of("deadletters", "redrive", "--all"), "--to", box.events)["sent"]
    assert sent == {}
    code, text = tidelog.on_terminal(*box.of("deadletters", "list"))
    assert code == 0
    assert "can be read as no letter" in text
    assert f"{marks_topic(box.letters)}" not in text


def test_a_topic_that_is_not_there_is_one_sentence(tidelog: CommandLine, tmp_path: Path) -> None:
    refusal = tidelog.refusal("deadletters", "list", "--letters", "no-such-topic")
    assert "no-such-topic" in refusal
    with Admin(bootstrap_servers=tidelog._bootstrap) as admin:
        found = admin.describe_topics(["no-such-topic"])["no-such-topic"]
    assert found.error is not None
    assert found.error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

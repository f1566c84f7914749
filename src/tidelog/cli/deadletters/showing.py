"""``tidelog deadletters show``: one letter, all of it, with nothing in it that a terminal would obey."""

from __future__ import annotations

from collections.abc import Mapping

from tidelog.cli.deadletters.listing import mark_json
from tidelog.cli.failure import Failure
from tidelog.cli.output import counted, print_json, printable, time_text
from tidelog.cli.records.record_text import bytes_to_json, headers_to_json, readable
from tidelog.spark.dead_letters.letter import Letter, Opener, opened
from tidelog.spark.dead_letters.letter_reader import LetterReader
from tidelog.spark.dead_letters.redrive import Mark, read_marks

_LEFT_OUT = [("value", "too large for a letter: see `tidelog consume` with --partition and --offset")]


_SEALED = [("sealed", "tokens stand for what may be phone numbers; --phone-keys shows the record itself")]


def find(reader: LetterReader, place: tuple[int, int], topic: str) -> Letter:
    """The letter at a place; raises one sentence where there is none."""
    partition, offset = place
    letter = reader.letter(partition, offset)
    if letter is None:
        raise Failure(
            f"{topic} has no letter {partition}:{offset}: `tidelog deadletters list` shows what there is"
        )
    return letter


def show(
    options: Mapping[str, object],
    topic: str,
    place: tuple[int, int],
    phones: Opener | None,
    *,
    json: bool,
) -> None:
    """Print a letter."""
    with LetterReader(options, topic) as reader:
        letter = find(reader, place, topic)
    if phones is not None:
        letter = opened(letter, phones)
    mark = read_marks(options, topic).get(letter.place)
    if json:
        print_json(_json(letter, mark))
        return
    for name, value in _lines(letter, mark):
        print(f"{name:<10} {value}")


def _lines(letter: Letter, mark: Mark | None) -> list[tuple[str, str]]:
    place = letter.place
    return [
        ("letter", f"{letter.name}, refused at {time_text(letter.refused_at_ms)}"),
        ("pipeline", printable(letter.pipeline) or "-"),
        ("code", printable(letter.code) or "-"),
        ("reason", printable(letter.reason) or "-"),
        ("redriven", _redriven(letter, mark)),
        ("record", f"{printable(place.topic)}, partition {place.partition}, offset {place.offset}"),
        ("timestamp", "-" if letter.timestamp_ms < 0 else time_text(letter.timestamp_ms)),
        *(_LEFT_OUT if letter.left_out else _record_lines(letter)),
    ]


def _record_lines(letter: Letter) -> list[tuple[str, str]]:
    headers = [
        ("header" if not number else "", f"{printable(name)}={readable(value)}")
        for number, (name, value) in enumerate(letter.headers)
    ]
    return [
        ("key", readable(letter.key)),
        *(headers or [("header", "-")]),
        ("value", readable(letter.value)),
        *(_SEALED if letter.seal is not None else ()),
    ]


def _redriven(letter: Letter, mark: Mark | None) -> str:
    if mark is not None:
        to = printable(mark.to)
        return f"{counted(mark.times, 'time')}, the last time to {to} at {time_text(mark.at_ms)}"
    if letter.redrives:
        return f"not since; the record had been sent again {counted(letter.redrives, 'time')} before"
    return "never"


def _json(letter: Letter, mark: Mark | None) -> dict[str, object]:
    place = letter.place
    return {
        "letter": letter.name,
        "refused_at": letter.refused_at_ms,
        "pipeline": letter.pipeline,
        "code": letter.code,
        "reason": letter.reason,
        "redriven": mark_json(mark),
        "redrives_before": letter.redrives,
        "left_out": letter.left_out,
        "sealed": letter.seal is not None,
        "record": {
            "topic": place.topic,
            "partition": place.partition,
            "offset": place.offset,
            "timestamp": letter.timestamp_ms,
            **bytes_to_json("key", letter.key),
            **bytes_to_json("value", letter.value),
            "headers": headers_to_json(letter.headers),
        },
    }

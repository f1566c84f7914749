"""``tidelog deadletters list``: letters by record and reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidelog.cli.output import counted, is_terminal, print_json, print_table, printable, remark, time_text
from tidelog.spark.dead_letters.letter import Letter, Place
from tidelog.spark.dead_letters.letter_reader import LetterFilter, LetterReader
from tidelog.spark.dead_letters.redrive import Mark, read_marks

_COLUMNS = ("letter", "refused at", "pipelines", "record", "code", "redriven", "reason")
_SHOWN_CHARS = 160
_HELD_MORE = 10_000


@dataclass(slots=True)
class Refusal:
    """A record and a reason: what all letters about it have in common."""

    newest: Letter
    letters: int = 0
    pipelines: set[str] = field(default_factory=set)

    def add(self, letter: Letter) -> None:
        """Take one more letter."""
        self.letters += 1
        if letter.pipeline is not None:
            self.pipelines.add(letter.pipeline)
        if letter.refused_at_ms >= self.newest.refused_at_ms:
            self.newest = letter


def gathered(letters: Iterable[Letter], limit: int | None) -> tuple[list[Refusal], bool]:
    """The newest refusals, the oldest of them first; whether there are older ones.

    Holds so many and some thousand more, however many letters there are: of older ones, letters of other
    pipelines about the same record may be missing.
    """
    found: dict[tuple[Place, str], Refusal] = {}
    cut = False
    for letter in letters:
        known = found.setdefault((letter.place, letter.code), Refusal(letter))
        known.add(letter)
        if limit is not None and len(found) > limit + _HELD_MORE:
            cut = True
            kept = sorted(found.items(), key=lambda each: _age(each[1]))[-limit:]
            found = dict(kept)
    ordered = sorted(found.values(), key=_age)
    cut = cut or (limit is not None and len(ordered) > limit)
    return ordered if limit is None else ordered[-limit:], cut


def _age(refusal: Refusal) -> tuple[int, int, int]:
    newest = refusal.newest
    return newest.refused_at_ms, newest.partition, newest.offset


def show(
    options: Mapping[str, object], topic: str, wanted: LetterFilter, limit: int | None, *, json: bool
) -> None:
    """Print the letters that are wanted."""
    with LetterReader(options, topic) as reader:
        # Values are not shown, and may be large.
        refusals, cut = gathered((each.without_record for each in reader.letters(wanted)), limit)
    marks = read_marks(options, topic)
    if json:
        print_json([_json(each, marks) for each in refusals])
        return
    if refusals or not is_terminal():
        rows = [_row(each, marks) for each in refusals]
        print_table(_COLUMNS, rows, right=("redriven",), optional=("refused at", "redriven"))
    if is_terminal():
        _remarks(topic, len(refusals), reader.others, cut=cut)


def _remarks(topic: str, shown: int, others: int, *, cut: bool) -> None:
    if not shown:
        remark(f"no letter of {topic} is like that")
    if cut:
        remark(f"these are the newest {shown}; --limit 0 shows all")
    if others:
        remark(f"{counted(others, 'record')} of {topic} can be read as no letter")


def _row(refusal: Refusal, marks: Mapping[Place, Mark]) -> tuple[object, ...]:
    letter = refusal.newest
    mark = marks.get(letter.place)
    return (
        letter.name,
        time_text(letter.refused_at_ms),
        [printable(each) for each in sorted(refusal.pipelines)],
        printable(str(letter.place)),
        printable(letter.code),
        None if mark is None else mark.times,
        _shortened(printable(letter.reason) or ""),
    )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _json(refusal: Refusal, marks: Mapping[Place, Mark]) -> dict[str, object]:
    letter = refusal.newest
    return {
        "letter": letter.name,
        "letters": refusal.letters,
        "refused_at": letter.refused_at_ms,
        "pipelines": sorted(refusal.pipelines),
        "topic": letter.place.topic,
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "timestamp": letter.timestamp_ms,
        "code": letter.code,
        "reason": letter.reason,
        "redriven": mark_json(marks.get(letter.place)),
    }


def mark_json(mark: Mark | None) -> dict[str, object] | None:
    """What is known of a record that was sent again."""
    return None if mark is None else {"times": mark.times, "to": mark.to, "at": mark.at_ms}

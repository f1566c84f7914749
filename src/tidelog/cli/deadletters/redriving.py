"""``tidelog deadletters redrive``: the plan, or what was sent, and what was left and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from tidelog.cli.deadletters.showing import find
from tidelog.cli.output import counted, print_json, print_table, printable, remark
from tidelog.client.options import ADMIN
from tidelog.spark.dead_letters.letter import Letter, Opener
from tidelog.spark.dead_letters.letter_reader import LetterFilter, LetterReader, options_for
from tidelog.spark.dead_letters.redrive import (
    Destinations,
    Left,
    OriginalRecords,
    Plan,
    Redrive,
    Rules,
    Sending,
    read_marks,
)


@dataclass(frozen=True)
class Wanted:
    """Letters by their places, or all that a filter takes."""

    places: tuple[tuple[int, int], ...]
    filter: LetterFilter

    def letters(self, reader: LetterReader, topic: str) -> Iterator[Letter]:
        """The letters."""
        if self.places:
            # One that is not there is said before anything is sent.
            return iter([find(reader, place, topic) for place in self.places])
        return reader.letters(self.filter)


def redrive(
    options: Mapping[str, object],
    topic: str,
    wanted: Wanted,
    rules: Rules,
    phones: Opener | None,
    *,
    dry_run: bool,
    json: bool,
) -> None:
    """Send what is wanted, or show it."""
    with LetterReader(options, topic) as reader, OriginalRecords(options, phones) as records:
        letters = wanted.letters(reader, topic)
        if dry_run:
            plan = Plan(rules, read_marks(options, topic), records)
            _show_plan(_checked(plan.sendings(letters), options), plan.left, json=json)
            return
        with Redrive(options, topic) as running:
            plan = Plan(rules, running.marks, records)
            sent = _send(running, plan, letters)
    if json:
        print_json({"dry_run": False, "sent": sent, "left": asdict(plan.left)})
        return
    print_table(("to", "records sent"), sorted(sent.items()), right=("records sent",))
    _tell(plan.left)


def _send(running: Redrive, plan: Plan, letters: Iterator[Letter]) -> Counter[str]:
    sent: Counter[str] = Counter()
    try:
        for each in running.send(plan.sendings(letters)):
            sent[each.to] += 1
    except BaseException:
        if sent:
            remark(f"{counted(sent.total(), 'record')} had been sent and marked before it failed")
        raise
    return sent


def _checked(sendings: Iterator[Sending], options: Mapping[str, object]) -> list[Sending]:
    """What would be sent, without the records: they are not shown, and may be large."""
    from tidelog.client import Admin

    with Admin(options_for(ADMIN, options)) as admin:
        destinations = Destinations(admin)
        checked = []
        for each in sendings:
            destinations.partition(each)
            checked.append(each._replace(letter=each.letter.without_record))
        return checked


def _show_plan(sendings: list[Sending], left: Left, *, json: bool) -> None:
    if json:
        print_json(
            {
                "dry_run": True,
                "to_send": [
                    {
                        "letter": each.letter.name,
                        "topic": each.letter.place.topic,
                        "partition": each.letter.place.partition,
                        "offset": each.letter.place.offset,
                        "to": each.to,
                        "times": each.times,
                    }
                    for each in sendings
                ],
                "left": asdict(left),
            }
        )
        return
    rows = [
        (
            each.letter.name,
            printable(str(each.letter.place)),
            printable(each.letter.code),
            printable(each.to),
            each.times,
        )
        for each in sendings
    ]
    print_table(("letter", "record", "code", "to", "time"), rows, right=("time",))
    remark(f"nothing was sent: without --dry-run it would be {counted(len(sendings), 'record')}")
    _tell(left)


def _tell(left: Left) -> None:
    if left.sent_before:
        remark(f"{counted(left.sent_before, 'letter')} left: sent before, --again sends once more")
    if left.too_often:
        remark(f"{counted(left.too_often, 'letter')} left: sent too often already, see --max-redrives")
    if left.same_record:
        remark(f"{counted(left.same_record, 'letter')} left: about records that other letters send")
    if left.gone:
        remark(
            f"{counted(left.gone, 'letter')} left: about records that are too large or sealed, and gone from "
            "their topic; --phone-keys opens what is sealed, as long as it has the key"
        )

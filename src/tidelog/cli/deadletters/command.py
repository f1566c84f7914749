"""``tidelog deadletters``: list what was refused and why, show a letter, send records again.

Works with the letters of the pipelines (``ml_dead_letters``) and, by ``--letters``, with those that a
``StreamConsumer`` writes; on any Kafka cluster, without Spark.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Annotated

import typer

from tidelog import extensions
from tidelog.cli.connect import reached_options
from tidelog.cli.failure import Failure, WrongUsage
from tidelog.cli.output import examples
from tidelog.cli.shared_options import DEFAULT_CONNECTION, Connection, JsonOutput, grouped
from tidelog.cli.values import parse_time_ms
from tidelog.spark.dead_letters.letter import DEAD_LETTERS
from tidelog.spark.dead_letters.letter_reader import LetterFilter
from tidelog.spark.dead_letters.redrive import MAX_REDRIVES, Rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidelog.spark.dead_letters.letter import Opener

app = typer.Typer()

DEFAULT_LIMIT = 100
_NAME = re.compile(r"(\d{1,9}):(\d{1,19})", re.ASCII)
_DEFAULTS = {"default.api.timeout.ms": 30_000}

PhoneKeysFile = Annotated[
    Path | None,
    typer.Option(
        "--phone-keys",
        metavar="FILE",
        help="Keys of the pipelines, which open records that may hold phone numbers.",
        show_default=False,
    ),
]
Letters = Annotated[
    str, typer.Option("--letters", metavar="TOPIC", help="The topic of the letters themselves.")
]


@dataclass(frozen=True)
class Chosen:
    """The options that choose among letters."""

    topic: Annotated[
        str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="Only records of this topic.")
    ] = None
    pipeline: Annotated[
        str | None,
        typer.Option("--pipeline", metavar="NAME", help="Only what this pipeline has refused."),
    ] = None
    reason: Annotated[
        str | None,
        typer.Option(
            "--reason", metavar="CODE", help="Only with this code: not-json, missing, missing:user_id."
        ),
    ] = None
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only refused at this time or later (ms or ISO)."),
    ] = None
    until: Annotated[
        str | None, typer.Option("--until", metavar="TIME", help="Only refused before this time.")
    ] = None

    @property
    def filter(self) -> LetterFilter:
        """The same for who reads."""
        return LetterFilter(
            self.topic,
            self.pipeline,
            self.reason,
            None if self.since is None else parse_time_ms(self.since, "--since"),
            None if self.until is None else parse_time_ms(self.until, "--until"),
        )


EVERYTHING = Chosen()

_LIST_EXAMPLES = (
    "tidelog deadletters list --pipeline earnings --since 2026-11-01",
    "tidelog deadletters list --reason missing:user_id --json",
    "tidelog deadletters list --letters orders.dead-letters",
)
_REDRIVE_EXAMPLES = (
    "tidelog deadletters redrive --reason range --dry-run",
    "tidelog deadletters redrive 0:15 2:3",
    "tidelog deadletters redrive --all --to ml_task_log_mended",
)


@app.command("list", epilog=examples(*_LIST_EXAMPLES))
@grouped
def list_letters(
    chosen: Chosen = EVERYTHING,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=0, help="The newest so many; 0 for all.")
    ] = DEFAULT_LIMIT,
    letters: Letters = DEAD_LETTERS,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """List dead letters: one row for each record and reason, with the pipelines that refused it."""
    from tidelog.cli.deadletters import listing

    listing.show(reached_options(connection, _DEFAULTS), letters, chosen.filter, limit or None, json=json)


@app.command(
    epilog=examples("tidelog deadletters show 0:15", "tidelog deadletters show 0:15 --json"),
    no_args_is_help=True,
)
@grouped
def show(
    letter: Annotated[
        str,
        typer.Argument(
            metavar="LETTER", help="Its partition and offset, as `list` has them.", show_default=False
        ),
    ],
    letters: Letters = DEAD_LETTERS,
    phone_keys: PhoneKeysFile = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Show one letter: who refused the record, why, and the whole record."""
    from tidelog.cli.deadletters import showing

    options = reached_options(connection, _DEFAULTS)
    showing.show(options, letters, place_of(letter), _phones(phone_keys), json=json)


@app.command(epilog=examples(*_REDRIVE_EXAMPLES), no_args_is_help=True)
@grouped
def redrive(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LETTER…]", help="Letters; else those that options choose.", show_default=False
        ),
    ] = None,
    chosen: Chosen = EVERYTHING,
    all_letters: Annotated[bool, typer.Option("--all", help="All letters of the topic.")] = False,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="TOPIC", help="Send there instead of to each record's own topic."),
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Also records that were sent before.")] = False,
    max_redrives: Annotated[
        int,
        typer.Option("--max-redrives", metavar="N", min=1, help="Leave records that were sent so often."),
    ] = MAX_REDRIVES,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", metavar="N", min=1, help="Send so many at most.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be sent.")] = False,
    letters: Letters = DEAD_LETTERS,
    phone_keys: PhoneKeysFile = None,
    json: JsonOutput = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> None:
    """Send the records of letters again as they were, each once, and remember which were sent."""
    from tidelog.cli.deadletters import redriving

    filtered = chosen != EVERYTHING
    if sum((bool(names), filtered, all_letters)) != 1:
        raise WrongUsage("say which letters: their names, or options that choose some, or --all for all")
    if to == letters:
        raise WrongUsage(f"--to {to} is the topic of the letters: name the topic that the records are for")
    redriving.redrive(
        reached_options(connection, _DEFAULTS),
        letters,
        redriving.Wanted(tuple(map(place_of, names or ())), chosen.filter),
        Rules(to, again, max_redrives, limit),
        _phones(phone_keys),
        dry_run=dry_run,
        json=json,
    )


def _phones(keys: Path | None) -> Opener | None:
    """What opens sealed records."""
    if keys is None:
        return None
    for each in extensions.extensions(extensions.RECORD_OPENERS):
        if each.name == "phone-keys":
            open_with: Callable[[Path], Opener] = each.load(FunctionType)
            return open_with(keys)
    raise Failure("no installed package opens records by phone keys: pip install tidelog-rewards")


def place_of(name: str) -> tuple[int, int]:
    """Partition and offset of the letter that people call ``name``."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise WrongUsage(f"{name!r} is no letter: write partition and offset as `list` has them, 0:15")
    return int(found[1]), int(found[2])

"""``tidelog phones``: find a number by its tokens, see the keys, add one.

No command shows a secret; they are in the file, for who may read it.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from tidelog.cli.failure import Failure
from tidelog.cli.lake.options import DEFAULT_DIRECTORY
from tidelog.cli.output import examples, print_json, print_table, remark
from tidelog.cli.shared_options import JsonOutput
from tidelog.cli.values import parse_time_ms

app = typer.Typer()

KeysFile = Annotated[
    Path | None,
    typer.Option(
        "--keys",
        metavar="FILE",
        help="The file with the keys; of pipelines in DIR it is DIR/phone-keys.toml.",
        show_default="tidelog-pipelines/phone-keys.toml, or of $TIDELOG_PIPELINES",
    ),
]


@app.command(
    epilog=examples(
        'tidelog phones token "138 1234 5678"',
        "tidelog phones token +5511987654321 --json",
    ),
    no_args_is_help=True,
)
def token(
    numbers: Annotated[list[str], typer.Argument(metavar="NUMBER…", help="Phone numbers.")],
    keys: KeysFile = None,
    country: Annotated[
        str, typer.Option("--country", metavar="CODE", help="Of numbers without an international prefix.")
    ] = "CN",
    json: JsonOutput = False,
) -> None:
    """Show what stands for phone numbers in lake, topics, tables and alerts: one token for each key."""
    from tidelog_rewards.phones.phone_keys import read_keys
    from tidelog_rewards.phones.phone_tokens import PhoneTokens

    there = read_keys(_file(keys))
    tokens = PhoneTokens(there, country)
    found = [
        {"number": number, "key": key.id, "token": each}
        for number in numbers
        for key, each in zip(there.keys, tokens.all_of(number), strict=True)
    ]
    if json:
        print_json(found)
    else:
        print_table(("number", "key", "token"), [tuple(row.values()) for row in found])


@app.command("keys", epilog=examples("tidelog phones keys"))
def list_keys(keys: KeysFile = None, json: JsonOutput = False) -> None:
    """List the keys, and from which event time on each is used."""
    from tidelog_rewards.phones.phone_keys import read_keys

    rows = [(key.id, key.since.isoformat().replace("+00:00", "Z")) for key in read_keys(_file(keys)).keys]
    if json:
        print_json([{"key": name, "from": since} for name, since in rows])
    else:
        print_table(("key", "used from"), rows)


@app.command(
    epilog=examples("tidelog phones rotate", "tidelog phones rotate --from 2027-01-01T00:00:00Z"),
)
def rotate(
    keys: KeysFile = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="TIME",
            help="Event time from which it is used; the day after tomorrow (UTC) if left out.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Add a key, by which later events get other tokens; pipelines that run take it before it is used."""
    from tidelog_rewards.phones.phone_keys import add_key

    if start is None:
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        since = midnight + timedelta(days=2)
    else:
        since = datetime.fromtimestamp(parse_time_ms(start, "--from") / 1000, UTC)
    key = add_key(_file(keys), since)
    moment = since.isoformat().replace("+00:00", "Z")
    remark(f"events from {moment} on get tokens of the key {key.id}")


def _file(keys: Path | None) -> Path:
    """The file that is meant: of the directory that the environment names, as for ``tidelog pipeline``."""
    if keys is not None:
        return keys
    path = Path(os.environ.get("TIDELOG_PIPELINES") or DEFAULT_DIRECTORY) / "phone-keys.toml"
    if not path.exists():
        raise Failure(
            f"there are no phone keys in {path}: the first `tidelog pipeline run` makes them; "
            "name the file of another directory with --keys"
        )
    return path

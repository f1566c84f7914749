"""What commands print: tables for people, tab-separated lines for pipes, JSON for programs.

Results go to stdout; remarks and errors go to stderr, so that a pipe carries results only. Piped tables
have no header line: ``cut``, ``awk`` and ``wc -l`` see rows. rich is imported only when a terminal asks for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import msgspec


def is_terminal() -> bool:
    """Whether stdout is a person's terminal."""
    return sys.stdout.isatty()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
) -> None:
    """Print ``rows`` as a table on a terminal, else one tab-separated line per row.

    ``right`` names the columns whose numbers are to be aligned at the right.
    """
    if not is_terminal():
        for row in rows:
            print("\t".join(_cell(value) for value in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    at_right = set(right)
    for column in columns:
        table.add_column(column, justify="right" if column in at_right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(value if isinstance(value, Text) else Text(_cell(value)) for value in row))
    Console(highlight=False).print(table)


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return value
        case list() | tuple():
            return ",".join(_cell(item) for item in value) or "-"
    return str(value)


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print ``value`` as JSON: indented, or on one line with ``indent=None`` (for streams of objects)."""
    encoded = msgspec.json.encode(value)
    if indent is not None:
        encoded = msgspec.json.format(encoded, indent=indent)
    sys.stdout.buffer.write(encoded + b"\n")


def remark(sentence: str) -> None:
    """Tell a person something that is not the result, on stderr."""
    print(sentence, file=sys.stderr)


def complain(sentence: str) -> None:
    """Say what went wrong, on stderr."""
    prefix = "error:"
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        prefix = f"\x1b[1;31m{prefix}\x1b[0m"
    print(f"{prefix} {sentence}", file=sys.stderr)


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush into a closed pipe stays quiet."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def time_text(timestamp_ms: int) -> str:
    """A record's timestamp as a person reads it (UTC), ``-`` where there is none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"

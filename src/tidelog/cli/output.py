"""What commands print: tables for people, tab-separated lines for pipes, JSON for programs.

Results go to stdout; remarks and errors go to stderr, so that a pipe carries results only. rich is
imported only for a terminal.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Self

import msgspec

from tidelog.printable import printable as printable

_BOLD, _RED, _RED_BOLD = "1", "31", "1;31"


def is_terminal() -> bool:
    """Whether stdout is a person's terminal."""
    return sys.stdout.isatty()


_headings_in_pipes: ContextVar[bool] = ContextVar("headings_in_pipes", default=False)


def set_headings_in_pipes(wanted: bool) -> None:
    """Print the names of columns above tables that are not shown on a terminal (``--headings``)."""
    _headings_in_pipes.set(wanted)


def headings_in_pipes() -> bool:
    """Whether tables have the names of their columns above them also where stdout is no terminal."""
    return _headings_in_pipes.get()


def print_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    right: Iterable[str] = (),
    optional: Sequence[str] = (),
) -> None:
    """Print ``rows`` as a table on a terminal, else one tab-separated line per row.

    ``right`` names the columns whose numbers are aligned at the right. ``optional`` columns are left out, the
    first one first, while the terminal is too narrow for them all.
    """
    if not is_terminal():
        if headings_in_pipes():
            print("\t".join(columns))
        for row in rows:
            print("\t".join(_cell(value) for value in row))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    texts = [[value if isinstance(value, Text) else Text(_cell(value)) for value in row] for row in rows]
    widths = [max([len(name), *(row[at].cell_len for row in texts)]) for at, name in enumerate(columns)]
    kept = _kept_columns(columns, widths, optional, console.width)
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    at_right = set(right)
    for at in kept:
        column = columns[at]
        table.add_column(column, justify="right" if column in at_right else "left", overflow="fold")
    for row in texts:
        table.add_row(*(row[at] for at in kept))
    console.print(table)


def _kept_columns(
    columns: Sequence[str], widths: Sequence[int], optional: Sequence[str], available: int
) -> list[int]:
    kept = list(range(len(columns)))
    for name in optional:
        # Three cells between two columns, one at each edge.
        if sum(widths[at] for at in kept) + 3 * (len(kept) - 1) + 2 <= available:
            break
        kept = [at for at in kept if columns[at] != name]
    return kept


def _cell(value: object) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            # Clients choose the names of groups, members and much else: none of them may forge a row.
            return printable(value)
        case list() | tuple():
            return ",".join(_cell(item) for item in value) or "-"
    return printable(str(value))


def print_json(value: object, *, indent: int | None = 2) -> None:
    """Print ``value`` as JSON: indented, or on one line with ``indent=None`` (for streams of objects)."""
    encoded = msgspec.json.encode(value)
    if indent is not None:
        encoded = msgspec.json.format(encoded, indent=indent)
    sys.stdout.buffer.write(encoded + b"\n")


def print_json_stream(fields: dict[str, object], name: str, elements: Iterable[object]) -> None:
    """Print one object on one line, whose last field ``name`` is an array that is never held as a whole."""
    out = sys.stdout.buffer
    out.write(msgspec.json.encode(fields)[:-1])
    out.write((b"," if fields else b"") + msgspec.json.encode(name) + b":[")
    for count, element in enumerate(elements):
        if count:
            out.write(b",")
        out.write(msgspec.json.encode(element))
    out.write(b"]}\n")


class Changes:
    """What a command has changed: a sentence for each change, or one JSON array of them with ``--json``.

    A context manager: the array is printed at its end. A command that fails prints the changes it made first.
    """

    def __init__(self, *, json: bool, quiet: bool = False) -> None:
        """``quiet`` puts the sentences on stderr, for commands without a result."""
        self._json = json
        self._say = remark if quiet else print
        self._made: list[dict[str, object]] = []

    def add(self, sentence: str, /, **fields: object) -> None:
        """Report one change."""
        if self._json:
            self._made.append(fields)
        else:
            self._say(sentence)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._json and (kind is None or self._made):
            print_json(self._made)


def remark(sentence: str) -> None:
    """Tell a person something that is not the result, on stderr, after the results so far."""
    sys.stdout.flush()
    print(_printable_lines(sentence), file=sys.stderr)


def complain(sentence: str) -> None:
    """Say what went wrong, on stderr, after the results so far."""
    sys.stdout.flush()
    prefix = _painted("error:", _RED_BOLD) if sys.stderr.isatty() else "error:"
    print(f"{prefix} {_printable_lines(sentence)}", file=sys.stderr)


def _printable_lines(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _painted(text: str, style: str) -> str:
    return text if "NO_COLOR" in os.environ else f"\x1b[{style}m{text}\x1b[0m"


def silence_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush into a closed pipe stays quiet."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, sys.stdout.fileno())
    os.close(nothing)


def examples(*commands: str) -> str:
    """The end of a command's help page."""
    return "\n\n".join(("Examples:", *commands))


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    plural = f"{noun}es" if noun.endswith("ch") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"


def bytes_text(size: float) -> str:
    """``512 B``, ``1.5 kB``, ``20 MB``: in thousands, as rates are given to ``--throttle``."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(size) < 999.5 or unit == "TB":
            break
        size /= 1000
    return f"{size:.1f} {unit}" if unit != "B" and abs(size) < 9.95 else f"{size:.0f} {unit}"


def time_text(timestamp_ms: int) -> str:
    """A record's timestamp as a person reads it (UTC), ``-`` where there is none."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{timestamp_ms % 1000:03d}Z"


class RowStream:
    """A table whose rows are printed as they come: aligned under headings on a terminal, else tab-separated.

    Unlike :func:`print_table` it holds nothing back, so that gigabytes of log can flow through it.
    """

    def __init__(self, columns: Sequence[tuple[str, int]]) -> None:
        """``columns`` are names and widths; a negative width aligns at the right."""
        self._terminal = is_terminal()
        self._widths = [width for _, width in columns]
        names = [name for name, _ in columns]
        if self._terminal:
            print(_painted(self._aligned(names), _BOLD))
        elif headings_in_pipes():
            print("\t".join(names))

    def row(self, values: Sequence[object], *, bad: bool = False) -> None:
        """Print one row, in red where it is ``bad``."""
        if not self._terminal:
            print("\t".join(map(_cell, values)))
            return
        line = self._aligned([_cell(value) for value in values])
        print(_painted(line, _RED) if bad else line)

    def line(self, text: str, *, bad: bool = False) -> None:
        """Print a line between the rows."""
        print(_painted(text, _RED) if bad and self._terminal else text)

    def _aligned(self, values: Sequence[str]) -> str:
        cells = (
            value.rjust(-width) if width < 0 else value.ljust(width)
            for value, width in zip(values, self._widths, strict=True)
        )
        return "  ".join(cells).rstrip()


def print_row(values: Sequence[object]) -> None:
    """One tab-separated line, on terminals too."""
    print("\t".join(map(_cell, values)))

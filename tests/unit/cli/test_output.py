"""Tables on terminals of several widths."""

from __future__ import annotations

import sys
from contextvars import copy_context

import msgspec
import pytest

from tidelog.cli import output

COLUMNS = ("topic", "lag", "host", "member")
ROWS = [("orders", 12, "127.0.0.1", "m" * 20)]


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (80, ["topic", "lag", "host", "member"]),
        (49, ["topic", "lag", "host", "member"]),
        (48, ["topic", "lag", "host"]),
        (26, ["topic", "lag", "host"]),
        (25, ["topic", "lag"]),
        (10, ["topic", "lag"]),
    ],
)
def test_optional_columns_give_way_on_narrow_terminals(
    width: int, shown: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    output.print_table(COLUMNS, ROWS, optional=("member", "host"))
    printed = capsys.readouterr().out
    assert all(len(line) <= width for line in printed.splitlines())
    if width > 20:
        assert printed.splitlines()[1].split() == shown


def test_a_pipe_gets_every_column(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(COLUMNS, ROWS, optional=("member", "host"))
    assert capsys.readouterr().out == f"orders\t12\t127.0.0.1\t{'m' * 20}\n"


def test_a_pipe_gets_headings_that_were_requested(capsys: pytest.CaptureFixture[str]) -> None:
    in_this_test = copy_context()
    in_this_test.run(output.set_headings_in_pipes, True)
    in_this_test.run(output.print_table, COLUMNS, ROWS, optional=("member", "host"))
    assert capsys.readouterr().out == f"topic\tlag\thost\tmember\norders\t12\t127.0.0.1\t{'m' * 20}\n"


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (9_960, "10 kB"),
        (999_600, "1.0 MB"),
        (5e15, "5000 TB"),
    ],
)
def test_sizes_are_told_in_units(size: float, text: str) -> None:
    assert output.bytes_text(size) == text


def test_names_of_strangers_move_no_cursor() -> None:
    assert output.printable('naïve "é"') == 'naïve "é"'
    assert output.printable("a\x1b[2J\tb\n\u202e") == r"a\x1b[2J\tb\n\u202e"
    assert output.printable(None) is None


HOSTILE = "mine\tEmpty\nbilling\x1b[2J"
ESCAPED = r"mine\tEmpty\nbilling\x1b[2J"


@pytest.mark.parametrize("terminal", [False, True])
def test_names_of_strangers_forge_no_rows(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: terminal)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")
    output.print_table(("group", "members"), [(HOSTILE, [HOSTILE])])
    rows = output.RowStream((("group", 40), ("members", 40)))
    rows.row((HOSTILE, (HOSTILE, Named(HOSTILE))))
    output.print_row((HOSTILE,))
    printed = capsys.readouterr().out
    assert printed.count(ESCAPED) == 6
    assert "\nbilling" not in printed
    assert "\x1b[2J" not in printed


def test_json_is_exact(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output.print_json([HOSTILE], indent=None)
    sys.stdout.flush()
    assert msgspec.json.decode(capfdbinary.readouterr().out) == [HOSTILE]


def test_remarks_and_errors_keep_their_lines_and_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    output.remark("one\ntwo\x1b[2J")
    output.complain("group a\x1b]0;b")
    assert capsys.readouterr().err == "one\ntwo\\x1b[2J\nerror: group a\\x1b]0;b\n"


class Named:
    """Something that is shown by its name."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __str__(self) -> str:
        return self._name

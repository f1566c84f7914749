"""Tables on terminals of several widths."""

from __future__ import annotations

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

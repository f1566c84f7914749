"""Exported files: what a spreadsheet would run is text, and nothing breaks a line."""

from __future__ import annotations

import csv
import io

import pytest

from tidelog.console.records.export import header_line, lines
from tidelog.console.records.raw import RawRecord


def cells(key: bytes, value: bytes) -> list[str]:
    record = RawRecord(0, 1, 2, key, value, [("=h", b"=1")])
    text = (header_line("csv") + lines([record], "csv")).decode()
    _, found = csv.reader(io.StringIO(text, newline=""))
    return found


@pytest.mark.parametrize(
    "formula",
    [
        "=cmd|'/C calc'!A0",
        "+1+1",
        "-1+1",
        "@SUM(1)",
        "\t=1+1",
        "\r=1",
        "\n=1+1",
        "  =1+1",
        "\u00a0=1",
        "＝1+1",
    ],
)
def test_formulas_are_text(formula: str) -> None:
    found = cells(formula.encode(), formula.encode())
    assert found[3] == found[4] == f"'{formula}"
    assert found[5].startswith("[[")


def test_quotes_commas_and_line_ends_stay_in_their_cell() -> None:
    value = 'a","b\r\n=1+1,c'
    assert cells(b"k", value.encode())[4] == value
    assert cells(b"\xff", b"")[3] == "base64:/w=="

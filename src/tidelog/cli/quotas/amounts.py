"""Quotas as people write and read them: 10MB a second, 50 %, 2.5."""

from __future__ import annotations

import math
import re

from tidelog.cli.failure import WrongUsage

_AMOUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([kKMGT]i?)?[bB]?(?:/s)?")
_SIZES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def parse_bytes(text: str, option: str) -> float:
    """Bytes a second: 500000, 500kB, 10MB, 1MiB; whole and above 0."""
    found = _AMOUNT.fullmatch(text.strip())
    if found is None:
        raise WrongUsage(f"invalid {option} {text!r}: write bytes per second, such as 500000, 500kB or 10MiB")
    number, unit = float(found[1]), found[2] or ""
    unit = "k" if unit == "K" else unit.replace("ki", "Ki")
    value = number * {**_SIZES, **_BINARY, "": 1}[unit]
    if not 1 <= value < math.inf or value != int(value):
        raise WrongUsage(f"invalid {option} {text!r}: write a whole number of bytes per second, 1 or more")
    return value


def parse_number(text: str, option: str, *, whole: bool = False) -> float:
    """A number above 0; a percent sign behind it is fine."""
    try:
        value = float(text.strip().removesuffix("%"))
    except ValueError:
        value = math.nan
    if not value > 0 or math.isinf(value) or (whole and value != int(value)):
        kind = "whole number" if whole else "number"
        raise WrongUsage(f"invalid {option} {text!r}: write a {kind} above 0")
    return value


def amount_text(key: str, value: float) -> str:
    """A quota for a table."""
    if math.isinf(value):
        return "no limit"
    if key.endswith("_byte_rate"):
        return f"{_short(value)}B/s"
    shown = f"{value:.15g}"
    return f"{shown} %" if key == "request_percentage" else f"{shown}/s"


def _short(value: float) -> str:
    for unit, size in reversed(_SIZES.items()):
        if value >= size and value * 1000 % size == 0:
            return f"{value / size:.15g} {unit}"
    return f"{value:.15g} "

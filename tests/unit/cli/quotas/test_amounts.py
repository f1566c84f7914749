from __future__ import annotations

from math import inf

import pytest

from tidelog.cli.failure import WrongUsage
from tidelog.cli.quotas.amounts import amount_text, parse_bytes, parse_number


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("500000", 500_000),
        ("500kB", 500_000),
        ("500KB", 500_000),
        ("1.5MB", 1_500_000),
        ("10M", 10_000_000),
        ("1MiB", 2**20),
        ("2 GiB/s", 2**31),
        ("1e6", 1_000_000),
    ],
)
def test_rates_are_written_as_people_write_them(text: str, value: float) -> None:
    assert parse_bytes(text, "--produce") == value


@pytest.mark.parametrize(
    "text", ["", "0", "-1", "1.5", "nan", "inf", "ten", "5 apples", "0.1kB/h", "0x10", "1e400", "1e308TB"]
)
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(WrongUsage, match="--produce"):
        parse_bytes(text, "--produce")


def test_percentages_may_have_their_sign() -> None:
    assert parse_number("12.5%", "--requests") == 12.5
    for text in ("0", "-3", "nan", "inf", "", "%"):
        with pytest.raises(WrongUsage, match="--requests"):
            parse_number(text, "--requests")
    with pytest.raises(WrongUsage, match="whole number"):
        parse_number("2.5", "--connections", whole=True)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("producer_byte_rate", 1_500_000, "1.5 MB/s"),
        ("producer_byte_rate", 1024, "1.024 kB/s"),
        ("consumer_byte_rate", 999, "999 B/s"),
        ("consumer_byte_rate", 1_234_567, "1234.567 kB/s"),
        ("request_percentage", 12.5, "12.5 %"),
        ("request_percentage", inf, "no limit"),
        ("controller_mutation_rate", 0.5, "0.5/s"),
        ("connection_creation_rate", 20.0, "20/s"),
    ],
)
def test_values_are_shown_without_losing_a_digit(key: str, value: float, text: str) -> None:
    assert amount_text(key, value) == text

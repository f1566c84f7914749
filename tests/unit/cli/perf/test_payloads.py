"""What `tidelog perf produce` sends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.cli.failure import Failure
from tidelog.cli.perf.payloads import from_file, numbers, random_letters


@pytest.mark.parametrize("size", [1, 100, 5 << 20])
def test_random_values_are_letters_of_the_size_asked_for(size: int) -> None:
    payload = random_letters(size)
    first, later = payload(0), payload(123_456)
    assert len(first) == len(later) == size
    assert first.isalpha()
    assert first.isupper()


def test_values_differ_until_the_pool_is_used_up() -> None:
    payload = random_letters(100)
    assert len({payload(number) for number in range(1000)}) == 1000


def test_a_file_is_divided_and_its_parts_are_chosen_at_random(tmp_path: Path) -> None:
    file = tmp_path / "values"
    file.write_bytes(b"one,two,,three,")
    payload = from_file(file, ",")
    assert {payload(number) for number in range(100)} == {b"one", b"two", b"three"}
    file.write_bytes(b"\n\n")
    with pytest.raises(Failure, match="contains no payload"):
        from_file(file, "\n")


def test_numbers_count() -> None:
    assert [numbers(each) for each in (0, 41)] == [b"0", b"41"]

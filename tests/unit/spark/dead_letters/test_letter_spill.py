"""Letters that wait come back by bucket, in their order."""

from __future__ import annotations

import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tidelog.spark.dead_letters.letter_spill import LetterSpill, LetterSpillError
from tidelog.spark.pipelines.runner import failure_sentence


def test_letters_come_back_by_bucket_in_their_order_as_often_as_they_are_asked_for() -> None:
    given = [(number * 7 % 3, b"%d" % number * 5000) for number in range(500)]
    with LetterSpill() as spill:
        for bucket, packed in given:
            spill.add(bucket, packed)
        for bucket in (2, 0, 1, 2):
            assert list(spill.of(bucket)) == [packed for at, packed in given if at == bucket]
        assert list(spill.of(3)) == []


@contextmanager
def full_disk() -> Iterator[None]:
    """No file of this process takes more than a megabyte."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def fill(spill: LetterSpill) -> None:
    for _ in range(50):
        spill.add(0, bytes(800_000))


def test_a_full_disk_is_told_with_what_to_do() -> None:
    with LetterSpill() as spill, full_disk(), pytest.raises(LetterSpillError) as raised:
        fill(spill)
    # As Spark passes it on.
    sentence = failure_sentence(RuntimeError("".join(traceback.format_exception(raised.value))))
    assert sentence.startswith("the dead letters of a task cannot wait in a temporary file (")
    assert sentence.endswith("or name another one in SQLITE_TMPDIR")

from __future__ import annotations

from collections import deque

import pytest

from tidelog.records import reused_memory
from tidelog.records.reused_memory import take_memory

SIZE = 1 << 20


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "_kept", deque(maxlen=4))


def test_memory_is_taken_again_once_no_view_of_it_is_left() -> None:
    first = take_memory(SIZE)
    memory = first.obj
    part = first[10:20]
    first.release()
    assert take_memory(SIZE).obj is not memory, "a slice still looks into it"
    part.release()
    assert take_memory(SIZE - 1).obj is memory


def test_what_is_taken_is_as_long_as_asked_for_and_writable() -> None:
    for size in (0, 1, 1000, SIZE, SIZE + 1, 3 * SIZE):
        view = take_memory(size)
        assert len(view) == size
        view[:] = bytes(size)


def test_memory_that_is_much_longer_than_needed_is_left_for_others() -> None:
    memory = take_memory(8 * SIZE).obj
    assert take_memory(SIZE).obj is not memory
    assert take_memory(8 * SIZE).obj is memory


def test_no_more_than_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "_KEPT_BYTES", 4 * SIZE)
    taken = [take_memory(SIZE) for _ in range(10)]
    assert sum(map(len, reused_memory._kept)) <= 4 * SIZE
    huge = take_memory(8 * SIZE)
    assert huge.obj not in reused_memory._kept
    assert len({id(each.obj) for each in taken}) == len(taken)

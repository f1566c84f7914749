"""The cleaner's map of keys: it never forgets a key it took, and never takes more than it may."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.ids import NO_OFFSET
from tidelog.storage.cleaner.offset_map import SLOT_BYTES, OffsetMap


@settings(max_examples=100, deadline=None)
@given(keys=st.lists(st.binary(max_size=4), max_size=200), slots=st.integers(2, 250))
def test_it_behaves_like_a_dict_up_to_its_capacity(keys: list[bytes], slots: int) -> None:
    offsets = OffsetMap(slots * SLOT_BYTES)
    expected: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        taken = offsets.put(key, offset)
        assert taken == (key in expected or len(expected) < offsets.capacity)
        if taken:
            expected[key] = offset
    assert offsets.size == len(expected) <= offsets.capacity < offsets.slots
    for key in set(keys):
        assert offsets.get(key) == expected.get(key, NO_OFFSET)
    assert offsets.get(b"never seen") == NO_OFFSET


def test_memory_is_bounded_and_no_more_than_the_keys_need() -> None:
    assert OffsetMap(1000 * SLOT_BYTES).slots == 1000
    assert OffsetMap(1000 * SLOT_BYTES).capacity == 900
    assert OffsetMap(1 << 30, expected_keys=10).slots == 20
    assert OffsetMap(SLOT_BYTES).capacity == 1


def test_latest_offset_only_grows() -> None:
    offsets = OffsetMap(100 * SLOT_BYTES)
    assert offsets.latest_offset == NO_OFFSET
    offsets.seen_up_to(7)
    offsets.seen_up_to(5)
    assert offsets.latest_offset == 7

"""Frames come out whole and in order however the bytes were cut, and bad sizes are refused at once."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import WireError
from tidelog.wire.frames import frame_size, split_frames

LIMIT = 1000


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(st.lists(st.binary(max_size=40), max_size=6), st.integers(0, 300))
@settings(database=None, derandomize=True)
def test_whole_frames_are_taken_and_a_partial_one_is_left(bodies: list[bytes], cut: int) -> None:
    stream = b"".join(map(framed, bodies))[:cut]
    frames, taken = split_frames(memoryview(stream), LIMIT)
    assert frames == bodies[: len(frames)]
    assert taken == sum(4 + len(body) for body in bodies[: len(frames)])
    if len(frames) < len(bodies):
        assert len(stream) < taken + 4 + len(bodies[len(frames)])


def test_frames_are_views_that_can_be_written_through() -> None:
    buffer = bytearray(framed(b"abcd"))
    (frame,), _ = split_frames(memoryview(buffer), LIMIT)
    frame[0] = ord("x")
    assert buffer[4:] == b"xbcd"


@pytest.mark.parametrize("size", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_sizes_out_of_bounds_are_refused_before_the_body_arrives(size: int) -> None:
    with pytest.raises(WireError, match=str(size)):
        split_frames(memoryview(struct.pack(">i", size)), LIMIT)


def test_a_frame_of_exactly_the_limit_and_an_empty_one_are_fine() -> None:
    assert frame_size(struct.pack(">i", LIMIT), 0, LIMIT) == LIMIT
    frames, end = split_frames(memoryview(framed(b"")), LIMIT)
    assert ([bytes(frame) for frame in frames], end) == ([b""], 4)

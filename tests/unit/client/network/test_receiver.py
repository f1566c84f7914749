from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.client._network import receiver as receiver_module
from tidelog.client._network.receiver import FrameReceiver

SIZES = st.one_of(
    st.integers(0, 40),
    st.integers(16_300, 16_500),
    st.integers(65_400, 65_700),
    st.integers(150_000, 200_000),
)


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(SIZES, min_size=1, max_size=6),
    reads=st.lists(st.integers(1, 100_000), min_size=1, max_size=30),
)
def test_frames_come_out_as_they_went_in_however_they_are_cut(sizes: list[int], reads: list[int]) -> None:
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)
    received: list[bytes] = []
    kept: list[memoryview] = []

    def take(view: memoryview, start: int, stop: int, owned: bool) -> None:
        received.append(bytes(view[start:stop]))
        if owned:
            kept.append(view[start:stop])

    async def main() -> None:
        receiver = FrameReceiver()
        receiver.max_frame_bytes = 1 << 20
        receiver.on_frame = take
        position = turn = 0
        while position < len(stream):
            buffer = receiver.get_buffer(-1)
            count = min(len(buffer), reads[turn % len(reads)], len(stream) - position)
            buffer[:count] = stream[position : position + count]
            receiver.buffer_updated(count)
            position, turn = position + count, turn + 1
        assert receiver.traffic.bytes_received == len(stream)

    asyncio.run(main())
    assert received == frames
    assert all(bytes(view) in frames for view in kept), "what is owned is never written to again"


def test_memory_for_a_very_long_frame_grows_with_its_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_module, "_TRUSTED_BYTES", 20_000)
    size = 300_000
    received: list[bytes] = []

    async def main() -> None:
        receiver = FrameReceiver()
        receiver.on_frame = lambda view, start, stop, owned: received.append(bytes(view[start:stop]))
        data = struct.pack(">i", size) + bytes(range(250)) * (size // 250)
        position = 0
        while position < len(data):
            buffer = receiver.get_buffer(-1)
            assert len(buffer) <= max(65_536, 2 * position + 20_000)
            count = min(len(buffer), 10_000, len(data) - position)
            buffer[:count] = data[position : position + count]
            receiver.buffer_updated(count)
            position += count
        assert received == [data[4:]]

    asyncio.run(main())

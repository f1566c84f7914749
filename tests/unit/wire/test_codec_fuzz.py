"""Whatever bytes arrive, decoding ends in a message or in WireError, and in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable, Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidelog.errors import WireError
from tidelog.wire.codec import decode, encode
from tidelog.wire.schema import Payload

FEW = settings(
    max_examples=3,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
HUGE_COUNTS = (b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\xff\x07", b"\x7f\xff")
Strategies = Callable[[type[Payload], int], st.SearchStrategy[Payload]]


def survives(payload: type[Payload], version: int, data: bytes) -> bool:
    """Whether the bytes are a message; any exception but WireError fails the test."""
    try:
        _, pos = decode(payload, version, data)
    except WireError:
        return False
    assert 0 <= pos <= len(data)
    return True


def mutations(data: bytes, rng: random.Random) -> Iterator[bytes]:
    for _ in range(12):
        yield data[: rng.randrange(len(data) + 1)]
        bent = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            if bent:
                bent[rng.randrange(len(bent))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        yield bytes(bent)
        at = rng.randrange(len(data) + 1)
        yield data[:at] + rng.choice(HUGE_COUNTS) + data[at:]


def test_mutated_messages_are_read_or_refused(
    payload: type[Payload], version: int, random_messages: Strategies
) -> None:
    @FEW
    @given(random_messages(payload, version), st.integers(0, 2**32))
    def check(message: Payload, seed: int) -> None:
        data = encode(message, version)
        assert survives(payload, version, data)
        for mutant in mutations(data, random.Random(seed)):
            survives(payload, version, mutant)

    check()


def test_random_bytes_are_read_or_refused(payload: type[Payload], version: int) -> None:
    rng = random.Random(f"{payload.__name__} {version}")
    for _ in range(20):
        survives(payload, version, rng.randbytes(rng.randrange(80)))


def test_a_cut_message_is_never_taken_for_a_whole_one(payload: type[Payload], version: int) -> None:
    data = encode(payload(), version)
    assert not any(survives(payload, version, data[:end]) for end in range(len(data)))


def test_claims_of_huge_sizes_cost_no_memory(payload: type[Payload], version: int) -> None:
    data = encode(payload(), version) + bytes(64)
    claims = [data[:at] + huge + data[at:] for at in range(len(data) - 64) for huge in HUGE_COUNTS]
    survives(payload, version, data)
    tracemalloc.start()
    try:
        for claim in claims:
            survives(payload, version, claim)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 256 * 1024 + 4 * sum(map(len, claims))

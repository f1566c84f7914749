from __future__ import annotations

import pytest

from tidelog.client.partitioner import partition_for_key
from tidelog.records.column_codec import murmur2

# Computed by the Java client's Utils.murmur2, as its own tests have them.
JAVA_HASHES = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), JAVA_HASHES.items())
def test_murmur2_is_what_the_java_client_computes(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_a_key_goes_where_kafka_python_sends_it_too() -> None:
    from kafka.partitioner.default import murmur2 as theirs

    for number in range(500):
        key = b"key-%d" % number * (number % 7 + 1)
        assert murmur2(key) == theirs(key) & 0xFFFFFFFF
        assert partition_for_key(key, 12) == (theirs(key) & 0x7FFFFFFF) % 12

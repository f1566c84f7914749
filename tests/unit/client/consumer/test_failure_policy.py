from __future__ import annotations

import pytest

from tidelog.client.consumer.failure_policy import dead_letter_headers
from tidelog.records.record_codec import ConsumerRecord


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("x" * 3_000_000), b"x" * 2000),
        (ValueError("half a pair: \ud800"), b"half a pair: ?"),
        (ValueError(), b"ValueError"),
    ],
    ids=["long", "not text", "silent"],
)
def test_whatever_an_error_says_a_letter_can_be_written(error: Exception, reason: bytes) -> None:
    record = ConsumerRecord("t", 1, 7, 1000, 0, b"k", b"v", (("own", b"1"),))
    (own, *told) = dead_letter_headers(record, error, attempts=1)
    assert own == ("own", b"1")
    assert dict(told)["dead-letter.reason"] == reason

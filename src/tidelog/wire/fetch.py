"""Fetch by hand: the public face of ``wire/fetch_request`` and ``wire/fetch_response``.

Brokers parse requests and encode responses here, clients decode responses. A client's FetchRequest
carries no records, so it goes through the codec like any other message.
"""

from __future__ import annotations

from tidelog.wire.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    parse_fetch_request,
    parse_in_slices,
)
from tidelog.wire.fetch_response import (
    FetchedPartition,
    FetchResult,
    FileRange,
    Part,
    PartitionAnswer,
    TopicAnswer,
    decode_fetch_response,
    encode_fetch_response,
    encode_in_slices,
)

__all__ = [
    "FetchPartition",
    "FetchRequest",
    "FetchResult",
    "FetchTopic",
    "FetchedPartition",
    "FileRange",
    "ForgottenTopic",
    "Part",
    "PartitionAnswer",
    "TopicAnswer",
    "decode_fetch_response",
    "encode_fetch_response",
    "encode_in_slices",
    "parse_fetch_request",
    "parse_in_slices",
]

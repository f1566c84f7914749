"""Fetch by hand: the public face of ``wire/fetch_request`` and ``wire/fetch_response``.

Brokers parse requests and encode responses here, clients decode responses. A client's FetchRequest
carries no records, so it goes through the codec like any other message.
"""

from __future__ import annotations

from tidelog.wire.fetch_request import (
    ForgottenTopic,
    ParsedFetch,
    WantedPartition,
    WantedTopic,
    parse_fetch_request,
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
)

__all__ = [
    "FetchResult",
    "FetchedPartition",
    "FileRange",
    "ForgottenTopic",
    "ParsedFetch",
    "Part",
    "PartitionAnswer",
    "TopicAnswer",
    "WantedPartition",
    "WantedTopic",
    "decode_fetch_response",
    "encode_fetch_response",
    "parse_fetch_request",
]

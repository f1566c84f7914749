"""What consumers tell about themselves in JoinGroup: the topics that they read.

The coordinator does not need it to coordinate; offsets of topics that a group reads are not deleted. It is
read whenever a generation begins, in one step, so there is a bound to it. The members of a group mostly name
the same topics: what many have said is read once.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable

from tidelog.errors import WireError

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, whose metadata is a ``ConsumerProtocolSubscription``."""
MAX_NAMES = 20_000
"""How many names the subscriptions of a group may have together for them to be read."""
_BEHIND_VERSION = 2
_COUNT = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_LONGEST_NAME = 249
_COMPARED = 8
_COMPARED_BYTES = 1024 * 1024


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str]:
    """All topics that the members' subscriptions name; raises ``WireError`` if one cannot be read.

    They are read in version 0, which is the beginning of every later one.
    """
    topics: set[str] = set()
    known: deque[bytes] = deque(maxlen=_COMPARED)
    left = MAX_NAMES
    for each in metadata:
        if any(each.startswith(names, _BEHIND_VERSION) for names in known):
            continue
        try:
            count, end = _read(each, left, topics)
        except (struct.error, UnicodeDecodeError):
            raise WireError("a member's subscription ends too early or holds what is no name") from None
        left -= count
        if end <= _COMPARED_BYTES:
            known.appendleft(each[_BEHIND_VERSION:end])
    return frozenset(topics)


def _read(metadata: bytes, most: int, topics: set[str]) -> tuple[int, int]:
    """Add the names of one subscription to ``topics``; how many there are, and the position behind them."""
    (count,) = _COUNT.unpack_from(metadata, _BEHIND_VERSION)
    if not 0 <= count <= most:
        raise WireError(f"a subscription has {count} names, and at most {MAX_NAMES} of a group are read")
    at = _BEHIND_VERSION + _COUNT.size
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(metadata, at)
        at += _LENGTH.size
        if length < 0 or at + length > len(metadata):
            raise WireError("a member's subscription ends too early or holds what is no name")
        if length <= _LONGEST_NAME:
            # No topic has a longer one.
            topics.add(str(metadata[at : at + length], "utf-8"))
        at += length
    return count, at

"""What consumers tell about themselves in JoinGroup: the topics that they read.

The coordinator does not need it to coordinate; offsets of topics that a group reads are not deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidelog.wire.codec import decode
from tidelog.wire.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"
"""The protocol type of consumers, whose metadata is a ``ConsumerProtocolSubscription``."""
_BEHIND_VERSION = 2


def subscribed_topics(metadata: Iterable[bytes]) -> frozenset[str]:
    """All topics that the members' subscriptions name; raises ``WireError`` if one cannot be read.

    They are read in version 0, which is the beginning of every later one.
    """
    topics: set[str] = set()
    for each in metadata:
        topics.update(decode(ConsumerProtocolSubscription, 0, each, _BEHIND_VERSION)[0].topics)
    return frozenset(topics)

"""Which membership a consumer has: by the options ``group.id`` and ``group.protocol``."""

from __future__ import annotations

from tidelog.client.group.membership import GroupMembership, NoGroup
from tidelog.client.options import ClientConfig


def membership_for(config: ClientConfig) -> GroupMembership:
    """The membership that a consumer's options ask for."""
    if config.optional_str("group.id") is None:
        return NoGroup()
    # A consumer loads the protocol that it speaks, not both.
    if config.str("group.protocol") == "consumer":
        from tidelog.client.group._consumer.consumer_membership import ConsumerMembership

        return ConsumerMembership(config)
    from tidelog.client.group._classic.classic_membership import ClassicMembership

    return ClassicMembership(config)

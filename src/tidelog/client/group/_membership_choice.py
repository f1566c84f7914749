"""Which membership a consumer has: by the options ``group.id`` and ``group.protocol``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from tidelog.client.group.membership import ConsumerGroupMetadata, GroupMembership, NoGroup, NotStarted

if TYPE_CHECKING:
    from tidelog.client._network.cluster import Cluster
    from tidelog.client.group._rebalance_callbacks import RebalanceCallbacks
    from tidelog.client.options import ClientConfig
    from tidelog.client.subscription._subscription_state import SubscriptionState

Start = Callable[["Cluster", "SubscriptionState", "RebalanceCallbacks"], GroupMembership]


class MembershipChoice(NamedTuple):
    """The membership of one consumer."""

    before_start: GroupMembership
    start: Start
    """Makes the membership that works; no I/O yet."""


def membership_for(config: ClientConfig) -> MembershipChoice:
    """The membership that a consumer's options ask for.

    Raises ``ConfigError`` for assignors that do not fit together.
    """
    group_id = config.optional_str("group.id")
    if group_id is None:
        none = NoGroup()
        return MembershipChoice(none, lambda cluster, subscription, callbacks: none)
    identity = ConsumerGroupMetadata(group_id, group_instance_id=config.optional_str("group.instance.id"))
    return MembershipChoice(NotStarted(identity), _start(config))


def _start(config: ClientConfig) -> Start:
    # A consumer loads the protocol that it speaks, not both.
    if config.str("group.protocol") == "consumer":
        from tidelog.client.group._consumer.consumer_membership import ConsumerMembership

        return lambda cluster, subscription, callbacks: ConsumerMembership(
            config, cluster, subscription, callbacks
        )
    from tidelog.client.group._classic.classic_membership import ClassicMembership
    from tidelog.client.group.assignors import assignors_from

    assignors = assignors_from(config.list("partition.assignment.strategy"))
    return lambda cluster, subscription, callbacks: ClassicMembership(
        config, assignors, cluster, subscription, callbacks
    )

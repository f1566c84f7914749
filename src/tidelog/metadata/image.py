"""The cluster's metadata as one broker sees it: plain dictionaries that every request reads.

The store is the truth, the image its copy in memory, shaped for look-ups: topics by name and by id,
partitions by number. Topic and partition objects are immutable; a change puts a new object in the old
one's place, so a handler may keep one over an ``await`` and see a consistent, if old, state.

Invariant: ``topic_by_id`` holds exactly the topics of ``topics`` that have an id. Only ``feed`` (and
tests) call the ``put_*`` and ``drop_*`` methods, and in a cluster ``cluster_feed``; each says whether
anything changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeVar

import msgspec

from tidelog.config.client_quotas import QuotaEntity
from tidelog.ids import INTERNAL_TOPICS, NO_LEADER_EPOCH, ZERO_UUID, Uuid
from tidelog.metadata.znodes.znodes import NO_LEADER, BrokerRegistration, PartitionState, TopicAssignment

if TYPE_CHECKING:
    # Few clusters have any.
    from tidelog.security.delegation_token import DelegationToken

_K = TypeVar("_K")
_V = TypeVar("_V")


class PartitionImage(msgspec.Struct, frozen=True, gc=False):
    """One partition: where its replicas are and who leads."""

    replicas: tuple[int, ...]
    leader: int = NO_LEADER
    leader_epoch: int = NO_LEADER_EPOCH
    isr: tuple[int, ...] = ()
    controller_epoch: int = 0
    leader_recovery_state: int = 0
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    state_version: int = -1
    """The version of the state node, for a conditional write; -1 while there is none."""
    offline_replicas: tuple[int, ...] = ()
    """Replicas that the controller of a cluster knows to be away."""

    def state(self) -> PartitionState:
        """What the state node holds."""
        return PartitionState(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=self.isr,
            controller_epoch=self.controller_epoch,
            leader_recovery_state=self.leader_recovery_state,
        )


class TopicImage(msgspec.Struct, frozen=True, gc=False):
    """One topic; ``partitions`` are sorted, and never changed in place.

    In a cluster some may be missing: brokers are told of those that have, or had, a leader.
    """

    name: str
    id: Uuid
    partitions: dict[int, PartitionImage]

    @property
    def partition_count(self) -> int:
        """How many partitions it has: those below one that is known are there, too."""
        return next(reversed(self.partitions), -1) + 1

    @property
    def is_internal(self) -> bool:
        """Whether Kafka keeps this topic for itself."""
        return self.name in INTERNAL_TOPICS


class MetadataImage:
    """Everything the broker knows of its cluster."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id: int = -1
        self.controller_epoch: int = 0
        self.brokers: dict[int, BrokerRegistration] = {}
        self.topics: dict[str, TopicImage] = {}
        self.topic_by_id: dict[Uuid, TopicImage] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        """A topic's own overrides, as text."""
        self.broker_configs: dict[int, dict[str, str]] = {}
        """Dynamic options of single brokers, as text."""
        self.default_broker_config: dict[str, str] = {}
        """Dynamic options of every broker, as text."""
        self.group_configs: dict[str, dict[str, str]] = {}
        """A group's own options, as text."""
        self.client_metrics: dict[str, dict[str, str]] = {}
        """Subscriptions to clients' metrics by their names, as text."""
        self.user_configs: dict[str, dict[str, str]] = {}
        """What is kept of a user, as text: SCRAM credentials, and quotas, which ``quotas`` has too."""
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        """The quotas of users, client ids and IP addresses."""
        self.delegation_tokens: dict[str, DelegationToken] = {}
        self.features: dict[str, int] = {}
        self.features_epoch: int = -1
        """The version of the feature node, by which clients tell old feature levels from new ones."""
        self.changes = 0
        """How often topics or brokers have changed: while it stays the same, so do answers about them."""
        self.deleting: set[str] = set()
        """Topics on their way out: still here, but not to be used."""

    def partition(self, topic: str, index: int) -> PartitionImage | None:
        """A partition, or None if the topic or the partition is not there."""
        found = self.topics.get(topic)
        return None if found is None else found.partitions.get(index)

    def topic_config(self, topic: str) -> dict[str, str]:
        """A topic's own overrides; empty for an unknown topic."""
        return self.topic_configs.get(topic, {})

    def broker_config(self, broker_id: int | None) -> dict[str, str]:
        """The dynamic options of one broker, or with None of every broker."""
        return self.default_broker_config if broker_id is None else self.broker_configs.get(broker_id, {})

    def put_topic(
        self, name: str, assignment: TopicAssignment, states: Mapping[int, tuple[PartitionState, int]]
    ) -> bool:
        """Install a topic; ``states`` gives each partition's state and the version of its node."""
        partitions = {
            index: _partition(
                replicas,
                assignment.adding_replicas.get(index, ()),
                assignment.removing_replicas.get(index, ()),
                states.get(index),
            )
            for index, replicas in sorted(assignment.partitions.items())
        }
        return self.install(TopicImage(name, assignment.topic_id or ZERO_UUID, partitions))

    def put_partition_states(self, topic: str, states: Mapping[int, tuple[PartitionState, int]]) -> bool:
        """Replace leaders and in-sync replicas of those partitions that have an assignment."""
        found = self.topics.get(topic)
        if found is None:
            return False
        partitions = dict(found.partitions)
        for index, state in states.items():
            old = partitions.get(index)
            if old is not None:
                partitions[index] = _partition(
                    old.replicas, old.adding_replicas, old.removing_replicas, state
                )
        return self.install(TopicImage(topic, found.id, partitions))

    def install(self, topic: TopicImage) -> bool:
        """Put a topic in the place of the one that had its name."""
        old = self.topics.get(topic.name)
        if old == topic:
            return False
        if old is not None and old.id != topic.id:
            self.topic_by_id.pop(old.id, None)
        self.topics[topic.name] = topic
        if topic.id != ZERO_UUID:
            self.topic_by_id[topic.id] = topic
        self.changes += 1
        return True

    def drop_topic(self, name: str) -> bool:
        """Forget a topic; its overrides go when their own node does."""
        old = self.topics.pop(name, None)
        if old is None:
            return False
        self.topic_by_id.pop(old.id, None)
        self.changes += 1
        return True

    def put_broker(self, registration: BrokerRegistration) -> bool:
        """Install a live broker."""
        changed = self.brokers.get(registration.broker_id) != registration
        self.brokers[registration.broker_id] = registration
        self.changes += changed
        return changed

    def drop_broker(self, broker_id: int) -> bool:
        """Forget a broker that is gone."""
        self.changes += broker_id in self.brokers
        return self.brokers.pop(broker_id, None) is not None

    def put_topic_config(self, topic: str, config: dict[str, str]) -> bool:
        """Replace a topic's overrides; empty ones are forgotten."""
        return _put(self.topic_configs, topic, config)

    def put_group_config(self, group: str, config: dict[str, str]) -> bool:
        """Replace a group's options; empty ones are forgotten."""
        return _put(self.group_configs, group, config)

    def put_client_metrics(self, name: str, config: dict[str, str]) -> bool:
        """Replace a subscription to clients' metrics; one without entries is forgotten."""
        return _put(self.client_metrics, name, config)

    def put_user_config(self, user: str, config: dict[str, str]) -> bool:
        """Replace what is kept of a user; one of whom nothing is kept is forgotten."""
        return _put(self.user_configs, user, config)

    def put_quotas(self, entity: QuotaEntity, quotas: dict[str, float]) -> bool:
        """Replace an entity's quotas; one that has none is forgotten."""
        return _put(self.quotas, entity, quotas)

    def put_delegation_token(self, token_id: str, token: DelegationToken | None) -> bool:
        """Install a delegation token, or forget it."""
        changed = self.delegation_tokens.get(token_id) != token
        if token is None:
            self.delegation_tokens.pop(token_id, None)
        else:
            self.delegation_tokens[token_id] = token
        return changed

    def put_broker_config(self, broker_id: int | None, config: dict[str, str]) -> bool:
        """Replace the dynamic options of one broker, or with None of every broker."""
        if broker_id is not None:
            return _put(self.broker_configs, broker_id, config)
        changed = self.default_broker_config != config
        self.default_broker_config = config
        return changed


def _put(table: dict[_K, dict[str, _V]], key: _K, config: dict[str, _V]) -> bool:
    changed = table.get(key, {}) != config
    if config:
        table[key] = config
    else:
        table.pop(key, None)
    return changed


def _partition(
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
    state: tuple[PartitionState, int] | None,
) -> PartitionImage:
    if state is None:
        return PartitionImage(replicas, adding_replicas=adding, removing_replicas=removing)
    known, version = state
    return PartitionImage(
        replicas,
        known.leader,
        known.leader_epoch,
        known.isr,
        known.controller_epoch,
        known.leader_recovery_state,
        adding,
        removing,
        version,
    )

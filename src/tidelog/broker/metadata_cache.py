"""Topics as Metadata answers tell of them, encoded once and kept until they change.

Every client asks for metadata, and a broker may have a hundred thousand partitions: to describe them takes a
second, to send what is there already a millisecond. What is kept depends on the version of the request, on
the listener that it came in by (endpoints are those of the listener) and on whether authorized operations are
asked for; a few of these variants are kept at a time.

Invariant: a topic's element is that of the ``TopicImage`` in the image now, told with the brokers that are in
the image now; the elements of all topics together are those of the image's present number of changes. Used by
``handlers/metadata``; what is new is encoded in slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from tidelog.broker.access.authorized_operations import TOPIC_OPERATIONS
from tidelog.errors import ErrorCode
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.znodes.znodes import NO_LEADER, BrokerRegistration
from tidelog.scheduling.slices import Slices
from tidelog.wire.codec import encode_element
from tidelog.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

_VARIANTS = 4
_LISTENER_ERROR_SINCE = 6
# From here on an (empty) list of tags stands behind the last field.
_TAGS_SINCE = 9
_PARTITIONS_PER_SLICE = 64
# So many topics that are gone may still be kept.
_MAX_GONE = 256
_NONE_REFUSED: Mapping[int, int] = {}


class Variant(NamedTuple):
    """What the description of a topic depends on, besides the topic."""

    version: int
    listener: str
    operations: bool


class Elements(NamedTuple):
    """Topics, encoded one behind the other."""

    number: int
    encoded: bytes
    refused: Mapping[int, int]
    """The errors of topics and of their partitions, and how often."""
    none: int
    """How many topics and partitions have no error."""


class _Encoded(NamedTuple):
    """A topic as an element of an answer, what it was made of, and the errors of its partitions."""

    topic: TopicImage
    element: bytes
    refused: Mapping[int, int]


class _Known:
    """What is known in one variant."""

    def __init__(self) -> None:
        self.topics: dict[str, _Encoded] = {}
        self.brokers: dict[int, BrokerRegistration] = {}
        self.all: Elements | None = None
        self.all_at = -1

    def forget_all_but(self, there: Mapping[str, TopicImage]) -> None:
        """Keep no topics that are gone."""
        for name in self.topics.keys() - there.keys():
            del self.topics[name]


class MetadataCache:
    """The encoded topics of one broker's image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._variants: dict[Variant, _Known] = {}

    def all_topics(self, variant: Variant) -> Slices[Elements]:
        """Every topic there is."""
        known = self._known(variant)
        image = self._image
        if known.all is None or known.all_at != image.changes:
            changes = image.changes
            elements = yield from self.topics(variant, list(image.topics.values()))
            if changes != image.changes:
                # True of each topic at one moment, but not of all of them at the same.
                return elements
            known.all, known.all_at = elements, changes
            known.forget_all_but(image.topics)
        return known.all

    def topics(
        self,
        variant: Variant,
        topics: Iterable[TopicImage | MetadataResponseTopic],
        operations: Callable[[str], int] | None = None,
    ) -> Slices[Elements]:
        """These topics; of those that are not there, what the caller says of them.

        ``operations`` tells what the client may do to a topic, where that is asked for and not everything.
        """
        known = self._known(variant)
        if len(known.topics) > len(self._image.topics) + _MAX_GONE:
            known.forget_all_but(self._image.topics)
        parts: list[bytes] = []
        refused: dict[int, int] = {}
        none = 0
        for count, topic in enumerate(topics, 1):
            if isinstance(topic, MetadataResponseTopic):
                refused[topic.error_code] = refused.get(topic.error_code, 0) + 1
                hidden = topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
                if variant.operations and topic.name is not None and not hidden:
                    topic.topic_authorized_operations = (
                        TOPIC_OPERATIONS if operations is None else operations(topic.name)
                    )
                parts.append((yield from encode_element(topic, MetadataResponse, variant.version)))
            else:
                kept = known.topics.get(topic.name)
                if kept is None or kept.topic is not topic:
                    kept = known.topics[topic.name] = yield from self._encode(variant, topic)
                # The topic's own code, and those of its partitions.
                none += 1 + len(topic.partitions)
                for code, number in kept.refused.items():
                    refused[code] = refused.get(code, 0) + number
                    none -= number
                element = kept.element
                if operations is not None:
                    element = _with_operations(element, variant.version, operations(topic.name))
                parts.append(element)
            if not count % _PARTITIONS_PER_SLICE:
                yield
        return Elements(len(parts), b"".join(parts), refused, none)

    def _known(self, variant: Variant) -> _Known:
        known = self._variants.get(variant)
        if known is None:
            if len(self._variants) >= _VARIANTS:
                del self._variants[next(iter(self._variants))]
            known = self._variants[variant] = _Known()
        if known.brokers != self._image.brokers:
            # Somebody may be filling the old one, with what was true when he began.
            known = self._variants[variant] = _Known()
            known.brokers = dict(self._image.brokers)
        return known

    def _encode(self, variant: Variant, topic: TopicImage) -> Slices[_Encoded]:
        described = MetadataResponseTopic(name=topic.name, topic_id=topic.id, is_internal=topic.is_internal)
        if variant.operations:
            described.topic_authorized_operations = TOPIC_OPERATIONS
        brokers = self._image.brokers
        reachable = frozenset(
            broker.broker_id
            for broker in brokers.values()
            if any(endpoint.name == variant.listener for endpoint in broker.endpoints)
        )
        refused: dict[int, int] = {}
        for count, (index, partition) in enumerate(topic.partitions.items(), 1):
            told = _partition(variant.version, index, partition, brokers, reachable)
            if told.error_code:
                refused[told.error_code] = refused.get(told.error_code, 0) + 1
            described.partitions.append(told)
            if not count % _PARTITIONS_PER_SLICE:
                yield
        element = yield from encode_element(described, MetadataResponse, variant.version)
        return _Encoded(topic, element, refused or _NONE_REFUSED)


def _with_operations(element: bytes, version: int, operations: int) -> bytes:
    """An encoded topic with other operations, which are the last of its fields."""
    end = len(element) - (version >= _TAGS_SINCE)
    return b"".join((element[: end - 4], operations.to_bytes(4, "big", signed=True), element[end:]))


def _partition(
    version: int,
    index: int,
    partition: PartitionImage,
    brokers: dict[int, BrokerRegistration],
    reachable: frozenset[int],
) -> MetadataResponsePartition:
    code = ErrorCode.NONE
    leader = partition.leader
    if leader not in reachable or leader not in partition.replicas:
        code = ErrorCode.LEADER_NOT_AVAILABLE
        if leader in brokers and version >= _LISTENER_ERROR_SINCE:
            code = ErrorCode.LISTENER_NOT_FOUND
        leader = NO_LEADER
    replicas: Iterable[int] = partition.replicas
    isr: Iterable[int] = partition.isr
    away = [id for id in partition.replicas if id not in reachable]
    if version == 0:
        # Only here: clients of later versions are told all replicas and find out from the list of brokers.
        replicas = [id for id in replicas if id in reachable]
        isr = [id for id in isr if id in reachable and id in partition.replicas]
        if code == ErrorCode.NONE and away:
            code = ErrorCode.REPLICA_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(replicas),
        isr_nodes=list(isr),
        offline_replicas=[id for id in partition.replicas if id in away or id in partition.offline_replicas],
    )

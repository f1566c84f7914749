"""What is kept of topics for Metadata answers, and for how long."""

from __future__ import annotations

import weakref

from tidelog.broker.metadata_cache import MetadataCache, Variant
from tidelog.config.listeners import Listener
from tidelog.errors import ErrorCode
from tidelog.ids import Uuid
from tidelog.metadata.image import MetadataImage, PartitionImage, TopicImage
from tidelog.metadata.znodes.znodes import BrokerRegistration
from tidelog.scheduling.slices import run_to_end
from tidelog.wire.messages.metadata import MetadataResponseTopic

VARIANT = Variant(version=12, listener="PLAINTEXT", operations=False)


class Partitions(dict[int, PartitionImage]):
    """A mapping that tells when nobody holds it any more."""


def test_topics_that_are_gone_are_forgotten_though_nobody_asks_for_all() -> None:
    image = MetadataImage()
    cache = MetadataCache(image)
    held: list[weakref.ref[Partitions]] = []
    for number in range(2000):
        name = f"topic-{number}"
        partitions = Partitions()
        held.append(weakref.ref(partitions))
        image.install(TopicImage(name, Uuid(number.to_bytes(16, "big")), partitions))
        del partitions
        assert run_to_end(cache.topics(VARIANT, [image.topics[name]])).number == 1
        image.drop_topic(name)
    assert sum(each() is not None for each in held) < 300


def test_what_is_told_of_topics_that_are_not_there_is_counted() -> None:
    image = MetadataImage()
    image.install(TopicImage("orders", Uuid(bytes(16)), {}))
    cache = MetadataCache(image)
    unknown = [
        MetadataResponseTopic(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in "ab"
    ]
    told = run_to_end(cache.topics(VARIANT, [image.topics["orders"], *unknown]))
    assert told.number == 3
    assert told.refused == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 2}
    assert told.none == 1
    assert not run_to_end(cache.all_topics(VARIANT)).refused


def led_by(leader: int, *replicas: int) -> PartitionImage:
    return PartitionImage(replicas=replicas, leader=leader, leader_epoch=0, isr=replicas, controller_epoch=1)


def test_partitions_whose_leaders_are_away_are_counted_also_when_they_come_from_the_cache() -> None:
    image = MetadataImage()
    endpoint = Listener("PLAINTEXT", "broker", 9092, "PLAINTEXT")
    image.put_broker(BrokerRegistration(broker_id=1, endpoints=(endpoint,)))
    # Not by the listener that clients ask at.
    image.put_broker(BrokerRegistration(broker_id=2, endpoints=(endpoint._replace(name="INSIDE"),)))
    image.install(TopicImage("away", Uuid(bytes(16)), {0: led_by(3, 3), 1: led_by(1, 1), 2: led_by(2, 2)}))
    image.install(TopicImage("led", Uuid(bytes([1]) * 16), {0: led_by(1, 1, 3)}))
    cache = MetadataCache(image)
    gone = {ErrorCode.LEADER_NOT_AVAILABLE: 1, ErrorCode.LISTENER_NOT_FOUND: 1}
    for _ in range(2):
        told = run_to_end(cache.topics(VARIANT, image.topics.values()))
        assert told.refused == gone
        assert told.none == 2 + 2, "of both topics, and of the partitions that are led"
        assert run_to_end(cache.all_topics(VARIANT)) == told
    assert run_to_end(cache.topics(VARIANT, [image.topics["led"]])).refused == {}
    oldest = run_to_end(cache.all_topics(VARIANT._replace(version=0)))
    assert oldest.refused == {ErrorCode.LEADER_NOT_AVAILABLE: 2, ErrorCode.REPLICA_NOT_AVAILABLE: 1}
    image.put_broker(BrokerRegistration(broker_id=3, endpoints=(endpoint,)))
    assert run_to_end(cache.all_topics(VARIANT)).refused == {ErrorCode.LISTENER_NOT_FOUND: 1}


def test_a_topic_made_anew_is_told_anew() -> None:
    image = MetadataImage()
    cache = MetadataCache(image)
    told = set()
    for number in range(1, 4):
        image.install(TopicImage("orders", Uuid(bytes([number]) * 16), {}))
        told.add(run_to_end(cache.topics(VARIANT, [image.topics["orders"]])).encoded)
        image.drop_topic("orders")
    assert len(told) == 3

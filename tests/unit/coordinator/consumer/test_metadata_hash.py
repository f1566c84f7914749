"""The hash of a group's topics against those that Kafka 4.3 computes (``metadata_hashes.json``)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidelog.coordinator.group.consumer.metadata_hash import MetadataHash
from tidelog.coordinator.group.consumer.topics import TopicView
from tidelog.ids import uuid_from_text
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.znodes.znodes import BrokerRegistration, TopicAssignment

VECTORS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "metadata_hashes.json").read_text(encoding="utf-8")
)


def image_of(topics: dict[str, Any]) -> MetadataImage:
    """One broker for each rack; a partition's racks are its replicas."""
    image = MetadataImage()
    for broker_id in range(3):
        image.put_broker(BrokerRegistration(broker_id=broker_id, endpoints=(), rack=f"rack-{broker_id}"))
    for name, topic in topics.items():
        racks = topic["racks"] or [[]] * topic["partitions"]
        partitions = {
            index: tuple(int(rack.removeprefix("rack-")) for rack in each) for index, each in enumerate(racks)
        }
        image.put_topic(
            name, TopicAssignment(partitions=partitions, topic_id=uuid_from_text(topic["id"])), {}
        )
    return image


@pytest.mark.parametrize("vector", VECTORS, ids=range(len(VECTORS)))
def test_a_groups_hash_is_kafkas(vector: dict[str, Any]) -> None:
    image = image_of(vector["topics"])
    assert MetadataHash(TopicView(image)).of([*vector["topics"], "not-there"]) == vector["hash"]


def test_topics_that_do_not_exist_hash_to_nothing() -> None:
    assert MetadataHash(TopicView(MetadataImage())).of(["a", "b"]) == 0


def test_the_hash_follows_a_topic_that_grows() -> None:
    image = image_of({"t": {"id": "AAAAAAAAAAAAAAAAAAAAAg", "partitions": 1, "racks": None}})
    hashes = MetadataHash(TopicView(image))
    before = hashes.of(["t"])
    assert hashes.of(["t"]) == before
    image.put_topic(
        "t", TopicAssignment(partitions={0: (), 1: ()}, topic_id=uuid_from_text("AAAAAAAAAAAAAAAAAAAAAg")), {}
    )
    assert hashes.of(["t"]) != before

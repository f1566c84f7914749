"""Keywords of other Python clients in the specs of the admin client: taken, or refused with ours."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tidelog.client.admin.cluster_resources import FeatureUpdate
from tidelog.client.admin.offset_reset import ShiftBy, ToOffset, ToOffsets, ToPlace, ToTime
from tidelog.client.admin.transaction_resources import AbortMarker
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from tidelog.ids import TopicPartition

SPECS = (
    NewTopic,
    NewPartitions,
    ConfigResource,
    AlterConfigOp,
    AbortMarker,
    FeatureUpdate,
    ToPlace,
    ToOffset,
    ToOffsets,
    ToTime,
    ShiftBy,
)
PLACE = TopicPartition("menu", 0)


@pytest.mark.parametrize(
    ("spec", "foreign", "ours"),
    [
        (NewTopic, {"name": "menu", "num_partitions": 3}, NewTopic("menu", partitions=3)),
        (NewTopic, {"topic": "menu", "num_partitions": 3}, NewTopic("menu", partitions=3)),
        (NewTopic, {"name": "menu", "replica_assignments": {0: [1]}}, NewTopic("menu", assignments={0: [1]})),
        (NewTopic, {"name": "menu", "topic_configs": {"a": "b"}}, NewTopic("menu", configs={"a": "b"})),
        (NewTopic, {"topic": "menu", "config": {"a": "b"}}, NewTopic("menu", configs={"a": "b"})),
        (NewPartitions, {"total_count": 6}, NewPartitions(6)),
        (NewPartitions, {"new_total_count": 6}, NewPartitions(6)),
        (NewPartitions, {"total_count": 6, "new_assignments": [[1]]}, NewPartitions(6, [[1]])),
        (NewPartitions, {"new_total_count": 6, "replica_assignment": [[1]]}, NewPartitions(6, [[1]])),
        (
            ConfigResource,
            {"resource_type": ResourceType.TOPIC, "name": "menu"},
            ConfigResource(ResourceType.TOPIC, "menu"),
        ),
        (
            ConfigResource,
            {"restype": ResourceType.TOPIC, "name": "menu"},
            ConfigResource(ResourceType.TOPIC, "menu"),
        ),
        (
            AlterConfigOp,
            {"name": "a", "value": None, "incremental_operation": AlterConfigOpType.DELETE},
            AlterConfigOp("a", None, AlterConfigOpType.DELETE),
        ),
        (
            AbortMarker,
            {"topic_partition": PLACE, "producer_id": 5, "producer_epoch": 1},
            AbortMarker(PLACE, 5, 1),
        ),
    ],
)
def test_another_clients_keyword_means_our_field(
    spec: Callable[..., object], foreign: dict[str, Any], ours: object
) -> None:
    assert spec(**foreign) == ours


@pytest.mark.parametrize(
    ("spec", "foreign", "words"),
    [
        (NewTopic, {"name": "menu", "partition": 3}, "NewTopic has no partition; did you mean partitions?"),
        (NewTopic, {"name": "menu", "replica_assignment": [[1]]}, "it is assignments, a mapping"),
        (
            NewTopic,
            {"name": "menu", "replicas": 3},
            "it takes name, partitions, replication_factor, assignments, configs",
        ),
        (NewTopic, {"name": "menu", "partitions": 3, "num_partitions": 3}, "got partitions twice"),
        (NewPartitions, {"topic": "menu", "new_total_count": 6}, "`create_partitions({topic: "),
        (
            ConfigResource,
            {"resource_type": 2, "name": "menu", "configs": {}},
            "`describe_configs(…, names=…)`",
        ),
        (ConfigResource, {"restype": 2, "name": "menu", "set_config": {}}, "`alter_configs("),
        (ConfigResource, {"restype": 2, "name": "menu", "incremental_configs": []}, "`alter_configs("),
        (
            ConfigResource,
            {"restype": 2, "name": "menu", "described_configs": {}},
            "`describe_configs` returns",
        ),
        (ConfigResource, {"restype": 2, "name": "menu", "error": None}, "return it"),
        (AlterConfigOp, {"name": "a", "value": "b", "source": 1}, "it takes name, value, op"),
        (AbortMarker, {"partition": PLACE, "producerid": 5}, "did you mean producer_id?"),
        (FeatureUpdate, {"max_version_levl": 1}, "did you mean max_version_level?"),
        (ToPlace, {"place": 1}, "ToPlace has no place; it takes spec"),
        (ToOffset, {"offsets": 1}, "did you mean offset?"),
        (ToOffsets, {"offset": {}}, "did you mean offsets?"),
        (ToTime, {"time": 1}, "it takes timestamp_ms"),
        (ShiftBy, {"n": 1}, "it takes count"),
    ],
)
def test_a_keyword_that_cannot_be_taken_is_refused_with_ours(
    spec: Callable[..., object], foreign: dict[str, Any], words: str
) -> None:
    with pytest.raises(TypeError) as refused:
        spec(**foreign)
    assert words in str(refused.value)


def test_a_field_given_by_position_is_not_given_again_by_another_name() -> None:
    spec: Callable[..., object] = NewTopic
    with pytest.raises(TypeError, match="got partitions twice: num_partitions is the same"):
        spec("menu", 3, num_partitions=3)


@pytest.mark.parametrize("spec", SPECS)
def test_the_signature_is_still_that_of_the_fields(spec: type) -> None:
    assert list(inspect.signature(spec).parameters) == [each.name for each in dataclasses.fields(spec)]


def test_specs_can_still_be_copied_and_sent_to_other_processes() -> None:
    topic = NewTopic("menu", partitions=3)
    assert pickle.loads(pickle.dumps(topic)) == copy.deepcopy(topic) == topic
    assert dataclasses.replace(topic, partitions=4).partitions == 4

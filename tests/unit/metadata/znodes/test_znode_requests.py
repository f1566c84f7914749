"""The JSON of requests and notices is Kafka's."""

from __future__ import annotations

import json

import pytest

from tidelog.errors import StorageError
from tidelog.ids import TopicPartition
from tidelog.metadata.znodes import znode_requests as requests

P0, P1 = TopicPartition("a", 0), TopicPartition("b", 1)


def test_a_reassignment_is_written_and_read_as_kafka_has_it() -> None:
    raw = (
        b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1,2]},'
        b'{"topic":"b","partition":1,"replicas":[3]}]}'
    )
    assert requests.decode_reassignment(raw) == {P0: (1, 2), P1: (3,)}
    assert json.loads(requests.encode_reassignment({P0: (1, 2), P1: (3,)})) == json.loads(raw)


def test_tools_may_say_more_than_is_needed() -> None:
    raw = b'{"version":1,"partitions":[{"topic":"a","partition":0,"replicas":[1],"log_dirs":["any"]}],"x":1}'
    assert requests.decode_reassignment(raw) == {P0: (1,)}


def test_partitions_are_listed_as_kafka_has_them() -> None:
    raw = b'{"version":1,"partitions":[{"topic":"a","partition":0},{"topic":"b","partition":1}]}'
    for encode in (requests.encode_preferred_election, requests.encode_isr_change):
        assert json.loads(encode([P0, P1])) == json.loads(raw)
    assert requests.decode_preferred_election(raw) == [P0, P1]
    assert requests.decode_isr_change("/isr_change_notification/isr_change_0", raw) == [P0, P1]


def test_a_failed_directory_names_its_broker() -> None:
    raw = b'{"version":1,"broker":3,"event":1}'
    assert json.loads(requests.encode_log_dir_event(3)) == json.loads(raw)
    assert requests.decode_log_dir_event("/log_dir_event_notification/log_dir_event_0", raw) == 3


def test_a_changed_config_is_named_in_both_versions() -> None:
    assert json.loads(requests.encode_config_change("topics/a")) == {"version": 2, "entity_path": "topics/a"}
    for raw, entity in (
        (b'{"version":2,"entity_path":"users/u/clients/c"}', "users/u/clients/c"),
        (b'{"version":1,"entity_type":"topics","entity_name":"a"}', "topics/a"),
    ):
        assert requests.decode_config_change("/config/changes/config_change_0", raw) == entity


@pytest.mark.parametrize("raw", [b"", b"[]", b'{"version":1}', b'{"version":1,"partitions":[{"topic":"a"}]}'])
def test_what_is_not_kafkas_names_the_node(raw: bytes) -> None:
    with pytest.raises(StorageError, match="/admin/reassign_partitions"):
        requests.decode_reassignment(raw)
    with pytest.raises(StorageError, match="/config/changes/x"):
        requests.decode_config_change("/config/changes/x", raw)

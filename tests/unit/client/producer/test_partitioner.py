from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path

import pytest

from tidelog.client.options import PRODUCER, ClientConfig
from tidelog.client.partitioner import partition_for_key
from tidelog.client.producer._settings import settings_from
from tidelog.client.producer.partitioner import BuiltInPartitioner, KeyPartitioner, RoundRobinPartitioner
from tidelog.client.producer.quick_send import key_partition
from tidelog.errors import ConfigError
from tidelog.records.column_codec import murmur2

# Printed once by the Java client 4.4: Utils.murmur2 and BuiltInPartitioner.partitionForKey.
JAVA = json.loads(Path(__file__).with_name("murmur2_java.json").read_text())


def test_keys_go_where_the_java_client_sends_them() -> None:
    for vector in JAVA:
        key = bytes.fromhex(vector["key"])
        assert murmur2(key) == vector["murmur2"] & 0xFFFFFFFF
        for count in (7, 100):
            assert partition_for_key(key, count) == vector[f"partition_of_{count}"]
            assert key_partition(key, count) == vector[f"partition_of_{count}"]


def test_the_built_in_partitioner_stays_until_its_share_is_produced() -> None:
    chooser = BuiltInPartitioner(100, random.Random(1))
    assert chooser.is_time_to_move
    chooser.next_partition([0, 1, 2], None)
    chooser.produced(60)
    assert not chooser.is_time_to_move
    chooser.produced(60)
    assert chooser.is_time_to_move
    chooser.next_partition([0, 1, 2], None)
    assert not chooser.is_time_to_move


def test_long_queues_are_chosen_less_often() -> None:
    chooser = BuiltInPartitioner(1, random.Random(2))
    chosen = Counter(chooser.next_partition([5, 6, 7], [0, 3, 1]) for _ in range(8000))
    for partition, weight in {5: 4, 6: 1, 7: 3}.items():
        assert abs(chosen[partition] - 1000 * weight) < 300


def test_equal_queues_are_chosen_equally() -> None:
    chooser = BuiltInPartitioner(1, random.Random(3))
    chosen = Counter(chooser.next_partition([0, 1], [4, 4]) for _ in range(2000))
    assert abs(chosen[0] - 1000) < 150


def test_round_robin_passes_over_partitions_without_a_leader() -> None:
    chooser = RoundRobinPartitioner()
    assert [chooser.partition("t", "k", b"k", "", b"", 4, [0, 2, 3]) for _ in range(4)] == [0, 2, 3, 0]
    assert chooser.partition("u", None, None, "", b"", 4, []) == 0


def test_the_key_partitioner_hashes_keys_and_spreads_the_rest() -> None:
    chooser = KeyPartitioner()
    assert chooser.partition("t", "foobar", b"foobar", "", b"", 7, [0]) == partition_for_key(b"foobar", 7)
    assert chooser.partition("t", None, None, "", b"", 7, [3]) == 3


def of_old_shape(topic: str, key: bytes, value: bytes, partition_count: int, available: object) -> int:
    return 0


class OldShape:
    partition = staticmethod(of_old_shape)


@pytest.mark.parametrize("partitioner", [of_old_shape, OldShape, OldShape(), 5])
def test_a_partitioner_with_other_arguments_is_refused_with_those_that_it_gets(partitioner: object) -> None:
    config = ClientConfig.parse(PRODUCER, bootstrap_servers="a:1", partitioner_class=partitioner)
    with pytest.raises(
        ConfigError, match="topic, key, key_bytes, value, value_bytes, partition_count, available"
    ):
        settings_from(config)

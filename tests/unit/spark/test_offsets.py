from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition
from tidelog.spark.offsets import from_json, read_offsets, read_partitions, to_json

OFFSETS = st.dictionaries(
    st.builds(TopicPartition, st.text("ab.-_9", min_size=1, max_size=5), st.integers(0, 200)),
    st.integers(-2, (1 << 63) - 1),
)


@settings(deadline=None)
@given(OFFSETS)
def test_offsets_come_back_from_a_checkpoint_as_they_were(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


@settings(deadline=None)
@given(OFFSETS)
def test_equal_offsets_have_equal_text(offsets: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(offsets.items()))
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(backwards))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    offsets = {TopicPartition("t", number): 0 for number in (10, 9, 1)}
    assert json.dumps(to_json(offsets)) == '{"t": {"1": 0, "9": 0, "10": 0}}'


def test_offsets_look_like_those_of_sparks_kafka_connector() -> None:
    text = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    assert read_offsets("startingOffsets", text) == {
        TopicPartition("topicA", 0): 23,
        TopicPartition("topicA", 1): -1,
        TopicPartition("topicB", 0): -2,
    }


@pytest.mark.parametrize(
    "text", ["", "7", "[1]", '{"t":5}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":true}}']
)
def test_malformed_offsets_are_refused_with_the_option_and_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r'option startingOffsets must look like \{"topicA"'):
        read_offsets("startingOffsets", text)


def test_assigned_partitions_are_read_in_order_and_once() -> None:
    found = read_partitions("assign", '{"b":[1],"a":[2,0,2]}')
    assert found == (TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1))


@pytest.mark.parametrize("text", ["orders", '{"t":0}', '{"t":[-1]}', '{"t":["0"]}', "{}"])
def test_malformed_assignments_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="option assign"):
        read_partitions("assign", text)

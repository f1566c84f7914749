from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import ConfigError
from tidelog.ids import TopicPartition, Uuid, uuid_to_text
from tidelog.spark.read._offsets import SourceOffset, from_json, read_offsets, read_partitions, to_json

TOPICS = st.text("ab.-_9", min_size=1, max_size=5)
OFFSETS = st.builds(
    SourceOffset,
    st.dictionaries(st.builds(TopicPartition, TOPICS, st.integers(0, 200)), st.integers(-2, (1 << 63) - 1)),
    st.dictionaries(TOPICS, st.binary(min_size=16, max_size=16).map(Uuid)),
)
OLD, NEW = Uuid(b"o" * 16), Uuid(b"n" * 16)


@settings(deadline=None)
@given(OFFSETS)
def test_offsets_come_back_from_a_checkpoint_as_they_were(offset: SourceOffset) -> None:
    assert from_json(json.loads(json.dumps(to_json(offset)))) == offset


@settings(deadline=None)
@given(OFFSETS)
def test_equal_offsets_have_equal_text(offset: SourceOffset) -> None:
    backwards = SourceOffset(dict(reversed(offset.offsets.items())), dict(reversed(offset.topic_ids.items())))
    assert json.dumps(to_json(offset)) == json.dumps(to_json(backwards))


def test_partitions_are_in_the_order_of_their_numbers() -> None:
    offset = SourceOffset({TopicPartition("t", number): 0 for number in (10, 9, 1)})
    assert json.dumps(to_json(offset)) == '{"t": {"1": 0, "9": 0, "10": 0}}'


def test_offsets_look_like_those_of_sparks_kafka_connector() -> None:
    text = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    offsets = {
        TopicPartition("topicA", 0): 23,
        TopicPartition("topicA", 1): -1,
        TopicPartition("topicB", 0): -2,
    }
    assert read_offsets("startingOffsets", text) == SourceOffset(offsets)


def test_ids_of_topics_stand_where_sparks_kafka_connector_sees_no_partitions() -> None:
    offset = SourceOffset({TopicPartition("t", 0): 5}, {"t": OLD})
    assert to_json(offset) == {"t": {"0": 5}, f"t#id:{uuid_to_text(OLD)}": {}}


def test_a_topic_with_another_id_is_made_anew_and_one_without_is_not() -> None:
    before = SourceOffset({TopicPartition("t", 0): 5, TopicPartition("u", 0): 6}, {"t": OLD, "u": OLD})
    assert before.made_anew(SourceOffset({}, {"t": NEW, "u": OLD, "v": NEW})) == {"t"}
    assert before.made_anew(SourceOffset({}, {})) == frozenset()
    assert SourceOffset({TopicPartition("t", 0): 5}).made_anew(before) == frozenset()
    assert before.without({"t"}) == SourceOffset({TopicPartition("u", 0): 6}, {"u": OLD})


@pytest.mark.parametrize(
    "text",
    [
        *("", "7", "[1]", '{"t":5}', '{"t":{"x":1}}', '{"t":{"0":"1"}}', '{"t":{"0":true}}'),
        *('{"t#id:":{}}', '{"t#id:abc":{}}', '{"t#id:b2xkb2xkb2xkb2xkb28":{"0":1}}'),
    ],
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

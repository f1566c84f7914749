"""Topics and partitions made, enlarged and deleted."""

from __future__ import annotations

from tests.compat.side_by_side.batches import batch
from tests.compat.side_by_side.cases import case
from tests.compat.side_by_side.records_requests import append, offsets_request
from tests.compat.side_by_side.side import UNKNOWN_ID, Side

from tidelog.ids import ZERO_UUID, Uuid
from tidelog.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tidelog.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

ME = 1
NOBODY = 77
Assignment = tuple[tuple[int, list[int]], ...]


def topic(
    name: str, partitions: int = 1, factor: int = 1, assigned: Assignment = (), **configs: str | None
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=ids) for i, ids in assigned],
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ],
    )


def create(
    side: Side, *topics: CreatableTopic, version: int = 7, dry: bool = False, timeout_ms: int = 5000
) -> object:
    """CreateTopics; new topics' ids are theirs to choose, and their configs come in any order."""
    request = CreateTopicsRequest(topics=list(topics), validate_only=dry, timeout_ms=timeout_ms)
    answer = side.ask(version, request)
    if isinstance(answer, dict):
        answer["topics"].sort(key=lambda each: (each["name"], each["error_code"]))
        for each in answer["topics"]:
            if version >= 7 and each["topic_id"] != ZERO_UUID.hex():
                each["topic_id"] = "an id"
            if version >= 5 and each["configs"]:
                each["configs"].sort(key=lambda config: config["name"])
    return answer


@case(versions=range(2, 8))
def create_topic(side: Side, version: int) -> object:
    answer = create(side, topic(side.name_of("t"), 2), version=version)
    assert isinstance(answer, dict)
    if version >= 5:
        answer["topics"][0]["configs"] = bool(answer["topics"][0]["configs"])
    return answer


@case()
def created_configs(side: Side) -> object:
    """All configs of a topic come with the answer that made it."""
    return create(side, topic(side.name_of("t"), cleanup_policy="compact,delete", retention_ms=" 7 "))


@case(versions=range(2, 8))
def create_existing(side: Side, version: int) -> object:
    return create(side, topic(side.topic()), version=version)


NAMES = {
    "empty": "",
    "dot": ".",
    "dots": "..",
    "too-long": "x" * 250,
    "illegal": "a b/c",
    "umlaut": "ä",
    "cluster-metadata": "__cluster_metadata",
}


@case(NAMES)
def create_impossible_name(side: Side, name: str) -> object:
    return create(side, topic(name))


@case(("a.b", "a_b"))
def create_colliding_name(side: Side, stem: str) -> object:
    side.topic("a.b" if stem == "a_b" else "a_b")
    return create(side, topic(side.name_of(stem)))


SHAPES: dict[str, dict[str, object]] = {
    "factor-3": {"factor": 3},
    "factor-0": {"factor": 0},
    "factor-minus-2": {"factor": -2},
    "partitions-0": {"partitions": 0},
    "partitions-minus-5": {"partitions": -5},
    "defaults": {"partitions": -1, "factor": -1},
    "partitions-10001": {"partitions": 10001},
    "partitions-10000": {"partitions": 10000},
    "partitions-highest": {"partitions": 2**31 - 1},
    "assigned": {"partitions": -1, "factor": -1, "assigned": ((0, [ME]), (1, [ME]))},
    "assigned-and-counted": {"factor": -1, "assigned": ((0, [ME]),)},
    "assigned-and-factor": {"partitions": -1, "assigned": ((0, [ME]),)},
    "assigned-gap": {"partitions": -1, "factor": -1, "assigned": ((0, [ME]), (2, [ME]))},
    "assigned-from-1": {"partitions": -1, "factor": -1, "assigned": ((1, [ME]),)},
    "assigned-twice": {"partitions": -1, "factor": -1, "assigned": ((0, [ME]), (0, [ME]))},
    "assigned-same-broker": {"partitions": -1, "factor": -1, "assigned": ((0, [ME, ME]),)},
    "assigned-nobody": {"partitions": -1, "factor": -1, "assigned": ((0, [NOBODY]),)},
    "assigned-negative": {"partitions": -1, "factor": -1, "assigned": ((0, [-1]),)},
    "assigned-empty": {"partitions": -1, "factor": -1, "assigned": ((0, []),)},
    "assigned-uneven": {"partitions": -1, "factor": -1, "assigned": ((0, [ME]), (1, [ME, NOBODY]))},
}


@case(SHAPES)
def create_shape(side: Side, shape: dict[str, object]) -> object:
    """Validated only: ten thousand partitions are nothing to wait for."""
    answer = create(side, topic(side.name_of("t"), **shape), dry=True)  # type: ignore[arg-type]
    return without_configs(answer)


def without_configs(answer: object) -> object:
    if isinstance(answer, dict):
        for each in answer["topics"]:
            each["configs"] = bool(each["configs"])
    return answer


CONFIGS: dict[str, dict[str, str | None]] = {
    "null": {"retention.ms": None},
    "unknown": {"no.such": ""},
    "not-a-number": {"retention.ms": "abc"},
    "spaces": {"retention.ms": " 5 "},
    "out-of-range": {"segment.bytes": "1"},
    "too-large": {"segment.bytes": "99999999999"},
    "cleanup-unknown": {"cleanup.policy": "foo"},
    "cleanup-empty": {"cleanup.policy": ""},
    "cleanup-both": {"cleanup.policy": "compact,delete"},
    "cleanup-twice": {"cleanup.policy": "delete,delete"},
    "compression-unknown": {"compression.type": "rar"},
    "compression-level": {"compression.gzip.level": "99"},
    "lag-conflict": {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"},
    "remote": {"remote.storage.enable": "true"},
    "local-retention": {"local.retention.ms": "5", "retention.ms": "3"},
    "boolean": {"preallocate": "yes"},
    "boolean-upper": {"preallocate": "TRUE"},
    "ratio": {"min.cleanable.dirty.ratio": "1.5"},
    "ratio-nan": {"min.cleanable.dirty.ratio": "x"},
    "throttled": {"leader.replication.throttled.replicas": "x"},
    "throttled-all": {"leader.replication.throttled.replicas": "*"},
    "throttled-some": {"leader.replication.throttled.replicas": "0:1,1:1"},
    "min-isr-0": {"min.insync.replicas": "0"},
    "timestamp-type": {"message.timestamp.type": "CreationTime"},
    "removed-message-format": {"message.format.version": "2.0"},
    "removed-timestamp-difference": {"message.timestamp.difference.max.ms": "5"},
}


@case(CONFIGS)
def create_with_config(side: Side, configs: dict[str, str | None]) -> object:
    return create(side, topic(side.name_of("t"), 1, 1, (), **configs), dry=True)


@case()
def create_with_config_twice(side: Side) -> object:
    wanted = topic(side.name_of("t"))
    wanted.configs = [CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")]
    return create(side, wanted, dry=True)


@case((True, False))
def create_same_name_twice(side: Side, dry: bool) -> object:
    name = side.name_of("t")
    return create(side, topic(name), topic(name), dry=dry)


@case()
def create_good_and_bad(side: Side) -> object:
    answer = create(side, topic(side.topic()), topic(side.name_of("new")), topic("bad name"), dry=True)
    return without_configs(answer)


@case()
def create_too_many_together(side: Side) -> object:
    answer = create(side, topic(side.name_of("a"), 9000), topic(side.name_of("b"), 9000), dry=True)
    return without_configs(answer)


@case(versions=(2, 7))
def create_nothing(side: Side, version: int) -> object:
    return create(side, version=version)


# CreatePartitions


def enlarge(
    side: Side, *wanted: tuple[str, int, list[list[int]] | None], version: int = 3, dry: bool = False
) -> object:
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if assigned is None
            else [CreatePartitionsAssignment(broker_ids=each) for each in assigned],
        )
        for name, count, assigned in wanted
    ]
    answer = side.ask(version, CreatePartitionsRequest(topics=topics, timeout_ms=5000, validate_only=dry))
    if isinstance(answer, dict):
        answer["results"].sort(key=lambda each: each["name"])
    return answer


COUNTS: dict[str, tuple[int, list[list[int]] | None]] = {
    "same": (2, None),
    "less": (1, None),
    "zero": (0, None),
    "negative": (-1, None),
    "too-few-assignments": (4, [[ME]]),
    "too-many-assignments": (3, [[ME], [ME]]),
    "nobody": (3, [[NOBODY]]),
    "same-broker-twice": (3, [[ME, ME]]),
    "no-broker": (3, [[]]),
    "uneven": (3, [[ME, NOBODY]]),
    "huge": (20000, None),
    "more": (5, None),
    "more-assigned": (3, [[ME]]),
}


@case(COUNTS, versions=(0, 3))
def more_partitions(side: Side, wanted: tuple[int, list[list[int]] | None], version: int) -> object:
    return enlarge(side, (side.topic("t", 2), *wanted), version=version, dry=wanted[0] > 5)


@case()
def more_partitions_serve(side: Side) -> object:
    name = side.topic()
    answer = enlarge(side, (name, 3, None))
    side.wait_until_led(name, 3)
    return [answer, side.ask(5, offsets_request(name, -1, partition=2))]


@case()
def more_partitions_dry(side: Side) -> object:
    name = side.topic()
    return [enlarge(side, (name, 3, None), dry=True), side.ask(5, offsets_request(name, -1, partition=2))]


@case(("none", "bad name", ""))
def more_partitions_of_nothing(side: Side, stem: str) -> object:
    return enlarge(side, (side.name_of(stem) if stem == "none" else stem, 3, None))


@case()
def more_partitions_twice(side: Side) -> object:
    name = side.topic()
    return enlarge(side, (name, 3, None), (name, 4, None))


@case()
def more_partitions_of_internal_topic(side: Side) -> object:
    side.ensure_topic("__consumer_offsets")
    return enlarge(side, ("__consumer_offsets", 60, None), dry=True)


# DeleteTopics


def delete(side: Side, *topics: tuple[str | None, Uuid], version: int = 6) -> object:
    if version >= 6:
        wanted = [DeleteTopicState(name=name, topic_id=id) for name, id in topics]
        request = DeleteTopicsRequest(topics=wanted, timeout_ms=5000)
    else:
        request = DeleteTopicsRequest(topic_names=[str(name) for name, _ in topics], timeout_ms=5000)
    answer = side.ask(version, request)
    if isinstance(answer, dict):
        answer["responses"].sort(key=lambda each: (str(each["name"]), each["error_code"]))
    return answer


@case(versions=range(1, 7))
def delete_topic(side: Side, version: int) -> object:
    return delete(side, (side.topic(), ZERO_UUID), version=version)


@case()
def delete_by_id(side: Side) -> object:
    return delete(side, (None, side.topic_id(side.topic())))


@case(versions=(1, 3, 5, 6))
def delete_unknown(side: Side, version: int) -> object:
    return delete(side, (side.name_of("none"), ZERO_UUID), version=version)


@case(versions=(1, 5, 6))
def delete_unknown_twice(side: Side, version: int) -> object:
    name = side.name_of("none")
    return delete(side, (name, ZERO_UUID), (name, ZERO_UUID), version=version)


@case(versions=(1, 5, 6))
def delete_twice(side: Side, version: int) -> object:
    name = side.topic()
    return delete(side, (name, ZERO_UUID), (name, ZERO_UUID), version=version)


@case(
    {
        "unknown-id": ((None, UNKNOWN_ID),),
        "neither": ((None, ZERO_UUID),),
        "id-twice": ((None, UNKNOWN_ID), (None, UNKNOWN_ID)),
        "impossible": (("bad name", ZERO_UUID),),
        "empty": (("", ZERO_UUID),),
        "nothing": (),
    }
)
def delete_odd(side: Side, topics: tuple[tuple[str | None, Uuid], ...]) -> object:
    return delete(side, *topics)


@case()
def delete_by_name_and_id(side: Side) -> object:
    name = side.topic()
    return delete(side, (name, side.topic_id(name)))


@case()
def delete_good_and_bad(side: Side) -> object:
    name = side.topic()
    answer = delete(side, (name, ZERO_UUID), (side.name_of("none"), ZERO_UUID))
    side.wait_until_gone(name)
    return answer


@case()
def create_again_after_deletion(side: Side) -> object:
    name = side.topic()
    append(side, name, batch(3))
    delete(side, (name, ZERO_UUID))
    side.wait_until_gone(name)
    side.topic()
    return side.ask(5, offsets_request(name, -1))

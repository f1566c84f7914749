"""Changes as they reach the store and the image: one controller on one real store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tidelog.controller.controller import CreatedTopic, MorePartitions
from tidelog.controller.features import FeatureUpdate, UpgradeType
from tidelog.controller.topics import ElectionType, NewTopic
from tidelog.errors import ErrorCode, KafkaError
from tidelog.ids import (
    CONSUMER_OFFSETS_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
    Uuid,
    random_uuid,
    uuid_to_text,
)

OpenSeat = Callable[..., Any]


def _run(open_seat: OpenSeat, body: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with open_seat(**options) as seat:
            await body(seat)

    asyncio.run(main())


def _code(outcome: object) -> ErrorCode:
    return outcome.code if isinstance(outcome, KafkaError) else ErrorCode.NONE


def test_a_new_topic_is_in_the_store_as_kafka_writes_it_and_in_the_image(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        topics = await seat.controller.create_topics([NewTopic("orders", 2, configs={"retention.ms": "5"})])
        created = topics["orders"]
        assert isinstance(created, CreatedTopic)
        node = json.loads((await seat.store.get("/brokers/topics/orders"))[0])
        assert node["topic_id"] == uuid_to_text(created.id)
        assert node["partitions"] == {"0": [1], "1": [1]}
        state = json.loads((await seat.store.get("/brokers/topics/orders/partitions/1/state"))[0])
        assert (state["leader"], state["leader_epoch"], state["isr"]) == (1, 0, [1])
        config = json.loads((await seat.store.get("/config/topics/orders"))[0])
        assert config["config"] == {"retention.ms": "5"}
        assert seat.image.topics["orders"].id == created.id
        assert seat.image.topic_config("orders") == {"retention.ms": "5"}
        assert seat.image.topic_by_id[created.id].partitions.keys() == {0, 1}

    _run(open_seat, body)


def test_topics_come_back_after_a_crash_with_new_leader_epochs(open_seat: OpenSeat) -> None:
    ids: list[Uuid] = []

    async def before(seat: Any) -> None:
        created = await seat.controller.create_topics([NewTopic("t", 2, configs={"segment.ms": "9"})])
        ids.append(created["t"].id)

    async def after(seat: Any) -> None:
        topic = seat.image.topics["t"]
        assert topic.id == ids[0]
        assert seat.image.topic_config("t") == {"segment.ms": "9"}
        assert [(p.leader, p.leader_epoch, p.isr) for p in topic.partitions.values()] == [(1, 1, (1,))] * 2
        assert seat.image.controller_epoch == 2

    _run(open_seat, before)
    _run(open_seat, after)


def test_validate_only_changes_nothing(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        outcome = await seat.controller.create_topics([NewTopic("t", 3)], validate_only=True)
        assert outcome["t"].assignment.keys() == {0, 1, 2}
        assert seat.image.topics == {}
        assert await seat.store.children("/brokers/topics") == []
        await seat.controller.create_topics([NewTopic("t")])
        assert await seat.controller.create_partitions([MorePartitions("t", 4)], validate_only=True) == {
            "t": None
        }
        assert len(seat.image.topics["t"].partitions) == 1

    _run(open_seat, body)


def test_one_bad_topic_does_not_keep_the_others_of_its_request(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        outcome = await seat.controller.create_topics(
            [
                NewTopic("good"),
                NewTopic("bad name"),
                NewTopic("wide", replication_factor=2),
                NewTopic("odd", configs={"no.such.option": "1"}),
                NewTopic("a.b"),
                NewTopic("a_b"),
            ]
        )
        assert {name: _code(each) for name, each in outcome.items()} == {
            "good": ErrorCode.NONE,
            "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
            "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
            "odd": ErrorCode.INVALID_CONFIG,
            "a.b": ErrorCode.NONE,
            "a_b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        assert seat.image.topics.keys() == {"good", "a.b"}

    _run(open_seat, body)


def test_a_topic_that_exists_is_refused_as_such_even_if_its_name_collides_with_itself(
    open_seat: OpenSeat,
) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("a.b")])
        again = await seat.controller.create_topics([NewTopic("a.b")])
        assert _code(again["a.b"]) is ErrorCode.TOPIC_ALREADY_EXISTS
        assert again["a.b"].message == "Topic 'a.b' already exists."

    _run(open_seat, body)


def test_a_request_that_changes_too_much_at_once_is_refused_whole(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        most = [NewTopic("a", 4_998), NewTopic("b", 5_000)]
        assert all(
            _code(each) is ErrorCode.NONE
            for each in (await seat.controller.create_topics(most, validate_only=True)).values()
        )
        with pytest.raises(KafkaError) as refused:
            await seat.controller.create_topics([*most, NewTopic("c", 1)], validate_only=True)
        assert refused.value.code is ErrorCode.POLICY_VIOLATION
        assert refused.value.message == "Unable to perform excessively large batch operation."

    _run(open_seat, body)


def test_defaults_come_from_the_brokers_configuration(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t")])
        partitions = seat.image.topics["t"].partitions
        assert len(partitions) == 4
        assert all(len(partition.replicas) == 2 for partition in partitions.values())

    _run(open_seat, body, options={"num.partitions": "4", "default.replication.factor": "2"}, brokers=3)


def test_concurrent_requests_for_the_same_topic_create_it_once(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        outcomes = await asyncio.gather(*(seat.controller.create_topics([NewTopic("t")]) for _ in range(5)))
        codes = sorted(_code(outcome["t"]).name for outcome in outcomes)
        assert codes == ["NONE"] + ["TOPIC_ALREADY_EXISTS"] * 4
        await asyncio.gather(*(seat.controller.auto_create_topics(["u"]) for _ in range(5)))
        assert seat.image.topics.keys() == {"t", "u"}

    _run(open_seat, body)


def test_auto_creation_gives_internal_topics_their_own_settings(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        outcome = await seat.controller.auto_create_topics(
            [CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, "plain", "plain"]
        )
        assert outcome == {CONSUMER_OFFSETS_TOPIC: None, TRANSACTION_STATE_TOPIC: None, "plain": None}
        assert len(seat.image.topics[CONSUMER_OFFSETS_TOPIC].partitions) == 7
        assert seat.image.topic_config(CONSUMER_OFFSETS_TOPIC) == {
            "cleanup.policy": "compact",
            "segment.bytes": "104857600",
            "compression.type": "producer",
        }
        assert len(seat.image.topics[TRANSACTION_STATE_TOPIC].partitions) == 50
        assert seat.image.topic_config(TRANSACTION_STATE_TOPIC)["cleanup.policy"] == "compact"
        assert seat.image.topic_config("plain") == {}

    options = {
        "offsets.topic.num.partitions": "7",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    _run(open_seat, body, options=options)


def test_auto_creation_reports_why_a_topic_cannot_be_created(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        outcome = await seat.controller.auto_create_topics(["bad name", CONSUMER_OFFSETS_TOPIC])
        assert _code(outcome["bad name"]) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert _code(outcome[CONSUMER_OFFSETS_TOPIC]) is ErrorCode.INVALID_REPLICATION_FACTOR

    _run(open_seat, body, options={"offsets.topic.replication.factor": "3"})


def test_a_deleted_topic_leaves_no_node_behind_and_its_name_is_free(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        first = (await seat.controller.create_topics([NewTopic("t", 3)]))["t"].id
        assert await seat.controller.delete_topics([first]) == {first: None}
        assert seat.image.topics == {}
        assert await seat.store.children("/brokers/topics") == []
        assert await seat.store.children("/config/topics") == []
        assert await seat.store.children("/admin/delete_topics") == []
        second = (await seat.controller.create_topics([NewTopic("t")]))["t"].id
        assert second != first

    _run(open_seat, body)


def test_deleting_an_unknown_id_does_not_keep_the_others(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        known = (await seat.controller.create_topics([NewTopic("t")]))["t"].id
        unknown = random_uuid()
        outcome = await seat.controller.delete_topics([unknown, known])
        assert outcome[known] is None
        assert _code(outcome[unknown]) is ErrorCode.UNKNOWN_TOPIC_ID

    _run(open_seat, body)


def test_partitions_are_added_behind_those_there_are(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t", 2), NewTopic("u", 1)])
        before = seat.image.topics["t"].partitions
        outcome = await seat.controller.create_partitions(
            [MorePartitions("t", 4), MorePartitions("u", 2, [[9]]), MorePartitions("no", 2)]
        )
        assert outcome["t"] is None
        assert _code(outcome["u"]) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert _code(outcome["no"]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        after = seat.image.topics["t"].partitions
        assert [after[index] for index in before] == list(before.values())
        assert [(after[n].leader, after[n].leader_epoch) for n in (2, 3)] == [(1, 0), (1, 0)]
        assert len(seat.image.topics["u"].partitions) == 1

    _run(open_seat, body)


def test_elections_are_not_needed_where_the_only_replica_leads(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t", 1)])
        partitions = [TopicPartition("t", 0), TopicPartition("t", 7), TopicPartition("no", 0)]
        outcome = await seat.controller.elect_leaders(partitions, ElectionType.PREFERRED)
        assert [(_code(each), each.message) for each in outcome.values()] == [
            (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such partition as t-7"),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic as no"),
        ]

    _run(open_seat, body)


def test_the_preferred_leader_is_elected_in_a_new_epoch(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t", assignments=[(0, [2, 1])])])
        path = "/brokers/topics/t/partitions/0/state"
        moved = json.loads((await seat.store.get(path))[0]) | {"leader": 1, "leader_epoch": 4}
        await seat.store.set(path, json.dumps(moved).encode())
        await seat.feed.caught_up()
        partition = TopicPartition("t", 0)
        outcome = await seat.controller.elect_leaders([partition], ElectionType.PREFERRED)
        assert outcome == {partition: None}
        elected = seat.image.topics["t"].partitions[0]
        assert (elected.leader, elected.leader_epoch, elected.isr) == (2, 5, (2, 1))

    _run(open_seat, body, brokers=2)


def test_topic_configs_are_edited_and_kept(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t", configs={"segment.ms": "9"})])
        heard: list[str] = []
        seat.configs.on_topic_change(lambda topic, _: heard.append(topic))
        await seat.controller.change_topic_config("t", lambda now: {**now, "retention.ms": "7"})
        assert seat.image.topic_config("t") == {"segment.ms": "9", "retention.ms": "7"}
        assert heard == ["t"]
        await seat.controller.change_topic_config("t", lambda now: {}, validate_only=True)
        assert seat.image.topic_config("t") == {"segment.ms": "9", "retention.ms": "7"}

    _run(open_seat, body)


@pytest.mark.parametrize(
    ("topic", "entries", "code", "message"),
    [
        ("", {}, ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("no", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'no' does not exist."),
        ("t", {"x": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: x"),
        ("no", {"x": "1"}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: x"),
    ],
)
def test_bad_topic_configs_are_refused(
    open_seat: OpenSeat, topic: str, entries: dict[str, str], code: ErrorCode, message: str
) -> None:
    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t")])
        with pytest.raises(KafkaError) as refused:
            await seat.controller.change_topic_config(topic, lambda now: entries)
        assert (refused.value.code, refused.value.message) == (code, message)

    _run(open_seat, body)


def test_broker_configs_take_effect_at_once_and_are_kept(open_seat: OpenSeat) -> None:
    async def before(seat: Any) -> None:
        change = seat.controller.change_broker_config
        await change(lambda now: {**now, "message.max.bytes": "5000"}, every_broker=True)
        assert seat.config.int("message.max.bytes") == 5000
        await change(lambda now: {**now, "message.max.bytes": "6000"}, every_broker=False)
        assert seat.config.int("message.max.bytes") == 6000
        with pytest.raises(KafkaError) as refused:
            await change(lambda now: {**now, "log.dirs": "/elsewhere"}, every_broker=False)
        assert refused.value.code is ErrorCode.INVALID_REQUEST

    async def after(seat: Any) -> None:
        assert seat.config.int("message.max.bytes") == 6000

    _run(open_seat, before)
    _run(open_seat, after)


def test_features_are_finalized_and_kept(open_seat: OpenSeat) -> None:
    async def before(seat: Any) -> None:
        assert seat.image.features == {"group.version": 1, "transaction.version": 2}
        down = FeatureUpdate("transaction.version", 1, UpgradeType.SAFE_DOWNGRADE)
        await seat.controller.update_features([down], validate_only=True)
        assert seat.image.features["transaction.version"] == 2
        await seat.controller.update_features([down])
        assert seat.image.features == {"group.version": 1, "transaction.version": 1}
        with pytest.raises(KafkaError) as refused:
            await seat.controller.update_features([FeatureUpdate("transaction.version", 0)])
        assert refused.value.code is ErrorCode.INVALID_UPDATE_VERSION

    async def after(seat: Any) -> None:
        assert seat.image.features == {"group.version": 1, "transaction.version": 1}

    _run(open_seat, before)
    _run(open_seat, after)


def test_a_request_that_may_not_wait_is_timed_out_and_changes_nothing(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        with pytest.raises(KafkaError) as refused:
            await seat.controller.create_topics([NewTopic("t")], timeout_ms=0)
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT
        assert seat.image.topics == {}
        await seat.controller.create_topics([NewTopic("t")], timeout_ms=30_000)
        assert seat.image.topics.keys() == {"t"}

    _run(open_seat, body)


def test_a_failing_disk_is_a_storage_error_and_changes_nothing(open_seat: OpenSeat) -> None:
    failing: list[bool] = []

    def sync(_: int) -> None:
        if failing:
            raise OSError(5, "Input/output error")

    async def body(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t")])
        failing.append(True)
        created = await seat.controller.create_topics([NewTopic("u")])
        assert created["u"].code is ErrorCode.KAFKA_STORAGE_ERROR
        for change in (
            seat.controller.change_topic_config("t", lambda now: {"retention.ms": "5"}),
            seat.controller.delete_topics([seat.image.topics["t"].id]),
        ):
            with pytest.raises(KafkaError) as refused:
                await change
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert seat.image.topics.keys() == {"t"}
        assert seat.image.topic_config("t") == {}

    _run(open_seat, body, sync=sync)


def test_a_mark_that_a_failed_deletion_left_does_not_doom_a_new_topic_of_that_name(
    open_seat: OpenSeat,
) -> None:
    async def before(seat: Any) -> None:
        await seat.store.create("/admin/delete_topics/t")
        await seat.feed.caught_up()
        await seat.controller.create_topics([NewTopic("t")])
        assert await seat.store.children("/admin/delete_topics") == []

    async def after(seat: Any) -> None:
        assert seat.image.topics.keys() == {"t"}
        await seat.store.create("/admin/delete_topics/t")
        await seat.feed.caught_up()
        topic_id = seat.image.topics["t"].id
        assert await seat.controller.delete_topics([topic_id]) == {topic_id: None}
        assert await seat.store.children("/admin/delete_topics") == []

    _run(open_seat, before)
    _run(open_seat, after)

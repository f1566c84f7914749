"""What a start finds in the store and on disk, and what it makes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tidelog.controller.topics import NewTopic
from tidelog.errors import ConfigError
from tidelog.ids import Uuid, uuid_to_text
from tidelog.metadata.producer_ids import ProducerIds
from tidelog.metadata.store import Delete
from tidelog.records.record import Record, encode_batch

OpenSeat = Callable[..., Any]
TOPIC_ID = Uuid(bytes(range(1, 17)))


def _run(open_seat: OpenSeat, body: Callable[[Any], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with open_seat(**options) as seat:
            await body(seat)

    asyncio.run(main())


def _partition(log_dir: Path, name: str, epochs: str = "0\n0\n") -> Path:
    directory = log_dir / name
    directory.mkdir(parents=True)
    (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(TOPIC_ID)}\n")
    (directory / "leader-epoch-checkpoint").write_text(epochs)
    return directory


def test_a_fresh_store_gets_kafkas_paths_and_a_controller(open_seat: OpenSeat) -> None:
    async def body(seat: Any) -> None:
        for path in ("/brokers/ids", "/admin/delete_topics", "/config/topics", "/isr_change_notification"):
            assert await seat.store.exists(path)
        assert seat.image.controller_id == 1
        assert seat.image.controller_epoch == 1

    _run(open_seat, body)


def test_topics_that_kafka_left_on_disk_are_taken_over_on_the_first_start(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    _partition(tmp_path, "orders-0", "0\n1\n4 0\n")
    _partition(tmp_path, "orders-2")
    _partition(tmp_path, "__consumer_offsets-0")
    (tmp_path / "__cluster_metadata-0").mkdir()

    async def body(seat: Any) -> None:
        assert seat.image.topics.keys() == {"orders", "__consumer_offsets"}
        orders = seat.image.topics["orders"]
        assert orders.id == TOPIC_ID
        assert {n: (p.leader, p.leader_epoch, p.isr) for n, p in orders.partitions.items()} == {
            0: (1, 5, (1,)),
            1: (1, 0, (1,)),
            2: (1, 0, (1,)),
        }
        assert seat.image.topic_config("__consumer_offsets")["cleanup.policy"] == "compact"

    _run(open_seat, body)


def test_a_new_cluster_finalizes_all_features_and_a_store_that_has_some_keeps_them(
    open_seat: OpenSeat,
) -> None:
    async def first(seat: Any) -> None:
        assert seat.image.features == {"group.version": 1, "transaction.version": 2}
        await seat.store.set("/feature", b'{"version":2,"status":1,"features":{}}')

    async def second(seat: Any) -> None:
        assert seat.image.features == {}
        await seat.store.multi([Delete("/feature")])

    async def from_before_there_were_features(seat: Any) -> None:
        assert seat.image.features == {"group.version": 1, "transaction.version": 2}

    _run(open_seat, first)
    _run(open_seat, second)
    _run(open_seat, from_before_there_were_features)


def test_features_producer_ids_and_group_configs_of_a_kafka_directory_are_kept(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    records = [
        b"\x01\x0c\x00\x14transaction.version\x00\x01\x00",
        b"\x01\x0f\x00" + bytes(12) + (5000).to_bytes(8, "big") + b"\0",
        b"\x01\x04\x00\x20\x02g\x1cconsumer.session.timeout.ms\x0650000\0",
        b"\x01\x04\x00\x20\x02g\x11consumer.no.such\x0650000\0",
    ]
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(
        encode_batch([Record(timestamp=1, value=value) for value in records])
    )

    async def body(seat: Any) -> None:
        assert seat.image.features == {"transaction.version": 1}
        assert await ProducerIds(seat.store, 1).next_id() == 5000
        assert seat.image.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}

    _run(open_seat, body)


def _metadata_log(log_dir: Path, records: list[bytes]) -> None:
    (log_dir / "__cluster_metadata-0").mkdir(parents=True)
    (log_dir / "__cluster_metadata-0" / f"{0:020}.log").write_bytes(
        encode_batch([Record(timestamp=1, value=value) for value in records])
    )


def _broker_option(broker: str, name: str, value: str) -> bytes:
    texts = b"".join(bytes([len(text) + 1]) + text.encode() for text in (broker, name, value))
    return b"\x01\x04\x00\x04" + texts + b"\0"


def test_dynamic_options_of_a_kafka_broker_hold_from_the_first_start_on(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    _metadata_log(
        tmp_path / "metadata",
        [
            _broker_option("", "log.retention.ms", "-1"),
            _broker_option("", "log.cleaner.backoff.ms", "soon"),
            _broker_option("", "log.cleaner.min.compaction.lag.ms", "50"),
            _broker_option("1", "message.max.bytes", "7"),
            _broker_option("1", "log.cleaner.max.compaction.lag.ms", "49"),
            _broker_option("1", "node.id", "7"),
            _broker_option("2", "message.max.bytes", "8"),
        ],
    )
    _partition(tmp_path, "orders-0")

    async def body(seat: Any) -> None:
        lag = {"log.cleaner.min.compaction.lag.ms": "50"}
        assert seat.image.default_broker_config == {"log.retention.ms": "-1", **lag}
        assert seat.image.broker_configs == {1: {"message.max.bytes": "7"}}
        defaults = seat.config.topic_defaults()
        assert (defaults["retention.ms"], defaults["max.message.bytes"]) == (-1, 7)

    _run(open_seat, body, options={"metadata.log.dir": str(tmp_path / "metadata")})


def test_a_topic_with_small_segments_is_taken_over_and_can_be_changed(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    texts = b"".join(bytes([len(each) + 1]) + each for each in (b"orders", b"segment.bytes", b"524288"))
    topic = b"\x01\x02\x00\x07orders" + TOPIC_ID + b"\0"
    _metadata_log(tmp_path, [topic, b"\x01\x04\x00\x02" + texts + b"\0"])
    _partition(tmp_path, "orders-0")

    async def body(seat: Any) -> None:
        assert seat.configs.topic("orders")["segment.bytes"] == 1 << 20
        await seat.controller.change_topic_config("orders", lambda now: {**now, "retention.ms": "7"})
        assert seat.image.topic_config("orders") == {"segment.bytes": "524288", "retention.ms": "7"}

    _run(open_seat, body)


def test_a_kafka_broker_whose_protection_cannot_be_had_is_not_taken_over(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    _metadata_log(tmp_path, [_broker_option("", "principal.builder.class", "a.b.C")])

    async def body(seat: Any) -> None:
        raise AssertionError

    for _ in range(2):
        with pytest.raises(ConfigError, match=r"principal\.builder\.class"):
            _run(open_seat, body)


def test_nothing_is_taken_over_once_the_store_exists(open_seat: OpenSeat, tmp_path: Path) -> None:
    async def nothing(seat: Any) -> None:
        assert seat.image.topics == {}

    _run(open_seat, nothing)
    _partition(tmp_path, "orders-0")
    _run(open_seat, nothing)


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    async def before(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("gone", 2), NewTopic("gone-2"), NewTopic("kept")])
        await seat.store.create("/admin/delete_topics/gone")

    async def after(seat: Any) -> None:
        assert seat.image.topics.keys() == {"gone-2", "kept"}
        assert await seat.store.children("/admin/delete_topics") == []
        assert await seat.store.children("/config/topics") == ["gone-2", "kept"]

    _run(open_seat, before)
    for name in ("gone-0", "gone-1", "gone-2-0", "kept-0"):
        (tmp_path / name).mkdir()
    _run(open_seat, after)
    left = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert [name for name in left if not name.endswith("-delete")] == ["gone-2-0", "kept-0"]
    assert sorted(name.split(".")[0] for name in left if name.endswith("-delete")) == ["gone-0", "gone-1"]


def test_a_deletion_whose_nodes_are_gone_still_removes_the_directories(
    open_seat: OpenSeat, tmp_path: Path
) -> None:
    async def before(seat: Any) -> None:
        await seat.store.create("/admin/delete_topics/gone")

    async def after(seat: Any) -> None:
        assert await seat.store.children("/admin/delete_topics") == []

    _run(open_seat, before)
    (tmp_path / "gone-0").mkdir()
    _run(open_seat, after)
    assert not (tmp_path / "gone-0").exists()


def test_a_broker_that_is_not_in_sync_does_not_lead_after_a_restart(open_seat: OpenSeat) -> None:
    path = "/brokers/topics/t/partitions/0/state"

    async def before(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t", assignments=[(0, [2, 1])])])
        await seat.store.set(
            path, b'{"controller_epoch":1,"leader":2,"version":1,"leader_epoch":3,"isr":[2]}'
        )

    async def after(seat: Any) -> None:
        partition = seat.image.topics["t"].partitions[0]
        assert (partition.leader, partition.leader_epoch, partition.isr) == (-1, 4, (2,))

    _run(open_seat, before, brokers=2)
    _run(open_seat, after)


def test_leader_epochs_stay_after_a_clean_shutdown(open_seat: OpenSeat, tmp_path: Path) -> None:
    async def before(seat: Any) -> None:
        await seat.controller.create_topics([NewTopic("t")])

    async def after(seat: Any) -> None:
        partition = seat.image.topics["t"].partitions[0]
        assert (partition.leader, partition.leader_epoch) == (1, 0)

    _run(open_seat, before)
    (tmp_path / ".kafka_cleanshutdown").touch()
    _run(open_seat, after)


def test_a_lost_path_is_made_again(open_seat: OpenSeat) -> None:
    async def before(seat: Any) -> None:
        await seat.store.multi([Delete("/isr_change_notification")])

    async def after(seat: Any) -> None:
        assert await seat.store.exists("/isr_change_notification")

    _run(open_seat, before)
    _run(open_seat, after)

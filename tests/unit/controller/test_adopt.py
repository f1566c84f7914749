"""Data directories as Apache Kafka leaves them, and what is taken over from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidelog.controller.adopt import find_cluster
from tidelog.controller.kraft_metadata import METADATA_DIRECTORY, read_kraft_metadata
from tidelog.errors import StorageError
from tidelog.ids import Uuid, uuid_to_text
from tidelog.records.record import Record, encode_batch
from tidelog.storage.producers.producer_snapshots import ProducerEntry, encode_snapshot

ORDERS = Uuid(bytes(range(16)))
OTHER = Uuid(bytes(range(16, 32)))


def _partition(log_dir: Path, name: str, topic_id: Uuid | None, epochs: str | None = None) -> Path:
    directory = log_dir / name
    directory.mkdir(parents=True)
    if topic_id is not None:
        (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n")
    if epochs is not None:
        (directory / "leader-epoch-checkpoint").write_text(epochs)
    return directory


def _string(text: str | None) -> bytes:
    return b"\0" if text is None else bytes([len(text) + 1]) + text.encode()


def _topic(name: str, topic_id: Uuid) -> bytes:
    return b"\x01\x02\x00" + _string(name) + topic_id + b"\0"


def _partition_record(topic_id: Uuid, partition: int) -> bytes:
    return b"\x01\x03\x01" + partition.to_bytes(4, "big") + topic_id + b"rest of the record"


def _config(kind: int, resource: str, name: str, value: str | None) -> bytes:
    return b"\x01\x04\x00" + bytes([kind]) + _string(resource) + _string(name) + _string(value) + b"\0"


def _removed(topic_id: Uuid) -> bytes:
    return b"\x01\x09\x00" + topic_id + b"\0"


def _feature(name: str, level: int) -> bytes:
    return b"\x01\x0c\x00" + _string(name) + level.to_bytes(2, "big") + b"\0"


def _producer_ids(next_id: int) -> bytes:
    return b"\x01\x0f\x00" + bytes(4) + bytes(8) + next_id.to_bytes(8, "big") + b"\0"


def _batch(values: list[bytes], base_offset: int = 0) -> bytes:
    return encode_batch([Record(timestamp=1, value=value) for value in values], base_offset=base_offset)


def _metadata_log(log_dir: Path, values: list[bytes]) -> Path:
    directory = log_dir / METADATA_DIRECTORY
    directory.mkdir(parents=True)
    (directory / f"{0:020}.log").write_bytes(_batch(values))
    return directory


def test_topics_keep_their_ids_and_partition_counts(tmp_path: Path) -> None:
    for n in range(3):
        _partition(tmp_path, f"orders-{n}", ORDERS)
    _partition(tmp_path, "a-b.c_d-0", OTHER)
    found = find_cluster([tmp_path]).topics
    assert [(topic.name, topic.id, topic.partitions) for topic in found] == [
        ("a-b.c_d", OTHER, 1),
        ("orders", ORDERS, 3),
    ]


def test_partitions_of_one_topic_may_lie_in_several_log_dirs_and_gaps_are_filled(tmp_path: Path) -> None:
    _partition(tmp_path / "d1", "orders-0", ORDERS)
    _partition(tmp_path / "d2", "orders-3", ORDERS)
    (topic,) = find_cluster([tmp_path / "d1", tmp_path / "d2", tmp_path / "missing"]).topics
    assert (topic.name, topic.partitions) == ("orders", 4)


def test_the_next_leader_epoch_follows_those_on_disk(tmp_path: Path) -> None:
    _partition(tmp_path, "orders-0", ORDERS, "0\n2\n3 0\n7 120\n")
    _partition(tmp_path, "orders-1", ORDERS, "0\n0\n")
    _partition(tmp_path, "orders-2", ORDERS)
    (topic,) = find_cluster([tmp_path]).topics
    assert topic.epochs == {0: 8, 1: 0, 2: 0}


def test_what_is_no_partition_is_left_alone(tmp_path: Path) -> None:
    _partition(tmp_path, "gone-0.0123456789abcdef0123456789abcdef-delete", ORDERS)
    _partition(tmp_path, "moving-0.0123456789abcdef0123456789abcdef-future", ORDERS)
    _partition(tmp_path, "stray-0.0123456789abcdef0123456789abcdef-stray", ORDERS)
    _partition(tmp_path, "no partition", ORDERS)
    _partition(tmp_path, "-5", ORDERS)
    (tmp_path / "file-0").write_text("a file")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n0\n")
    assert find_cluster([tmp_path]).topics == []


def test_a_topic_without_a_readable_id_gets_a_new_one(tmp_path: Path) -> None:
    _partition(tmp_path, "old-0", None)
    (_partition(tmp_path, "damaged-0", None) / "partition.metadata").write_text("version: 0\ntopic_id: ???\n")
    damaged, old = find_cluster([tmp_path]).topics
    assert len({damaged.id, old.id}) == 2
    assert len(damaged.id) == len(old.id) == 16


def test_the_commonest_id_wins_where_partitions_disagree(tmp_path: Path) -> None:
    _partition(tmp_path, "orders-0", OTHER)
    _partition(tmp_path, "orders-1", ORDERS)
    _partition(tmp_path, "orders-2", ORDERS)
    (topic,) = find_cluster([tmp_path]).topics
    assert topic.id == ORDERS


def test_topic_configs_come_from_the_kraft_metadata_log(tmp_path: Path) -> None:
    _metadata_log(
        tmp_path,
        [
            b"\x01\x1b\x00some other record",
            _topic("orders", ORDERS),
            _partition_record(ORDERS, 0),
            _config(2, "orders", "cleanup.policy", "compact"),
            _config(2, "orders", "retention.ms", "5"),
            _config(2, "orders", "retention.ms", None),
            _config(4, "1", "message.max.bytes", "7"),
        ],
    )
    _partition(tmp_path, "orders-0", ORDERS)
    (topic,) = find_cluster([tmp_path]).topics
    assert topic.configs == {"cleanup.policy": "compact"}


def test_features_taken_producer_ids_and_group_configs_come_from_the_kraft_metadata_log(
    tmp_path: Path,
) -> None:
    records = [_feature("metadata.version", 27), _feature("transaction.version", 2), _producer_ids(1000)]
    group = _config(32, "g", "consumer.session.timeout.ms", "50000")
    _metadata_log(tmp_path, [*records, _feature("transaction.version", 1), _producer_ids(3000), group])
    found = find_cluster([tmp_path])
    assert found.group_configs == {"g": {"consumer.session.timeout.ms": "50000"}}
    assert found.features == {"metadata.version": 27, "transaction.version": 1}
    assert found.next_producer_id == 3000


@pytest.mark.parametrize(("ids", "following"), [([], 0), ([0], 1000), ([7, 2999], 3000), ([3000], 4000)])
def test_without_a_metadata_log_ids_of_known_producers_are_not_given_out_again(
    tmp_path: Path, ids: list[int], following: int
) -> None:
    _partition(tmp_path, "empty-0", OTHER)
    directory = _partition(tmp_path, "orders-0", ORDERS)
    (directory / f"{5:020}.snapshot").write_bytes(b"torn, and not the newest")
    entries = [ProducerEntry(each, 0, 0, (), -1, 1, -1) for each in ids]
    (directory / f"{9:020}.snapshot").write_bytes(encode_snapshot(entries))
    assert find_cluster([tmp_path]).next_producer_id == following


def test_nothing_is_known_of_features_where_there_is_no_kraft_metadata_log(tmp_path: Path) -> None:
    _partition(tmp_path, "orders-0", ORDERS)
    found = find_cluster([tmp_path])
    assert (found.features, found.next_producer_id) == ({}, 0)


def test_partitions_of_a_topic_that_kraft_deleted_are_not_taken_over(tmp_path: Path) -> None:
    _metadata_log(tmp_path, [_topic("gone", OTHER), _topic("orders", ORDERS), _removed(OTHER)])
    _partition(tmp_path, "gone-0", OTHER)
    _partition(tmp_path, "orders-0", ORDERS)
    assert [topic.name for topic in find_cluster([tmp_path]).topics] == ["orders"]


def test_a_kraft_snapshot_replaces_what_came_before_it(tmp_path: Path) -> None:
    directory = tmp_path / METADATA_DIRECTORY
    directory.mkdir()
    log = _batch([_topic("orders", ORDERS), _config(2, "orders", "retention.ms", "1")])
    log += _batch([_config(2, "orders", "segment.ms", "9")], base_offset=2)
    (directory / f"{0:020}.log").write_bytes(log)
    (directory / f"{1:020}-{1:010}.checkpoint").write_bytes(_batch([_topic("older", OTHER)]))
    (directory / f"{2:020}-{1:010}.checkpoint").write_bytes(_batch([_topic("orders", ORDERS)]))
    (directory / f"{3:020}-{1:010}.checkpoint.part").write_bytes(b"half written")
    metadata = read_kraft_metadata(directory)
    assert metadata.topics == {ORDERS: "orders"}
    assert metadata.configs == {(2, "orders"): {"segment.ms": "9"}}


def test_a_torn_end_of_the_kraft_log_is_where_reading_stops(tmp_path: Path) -> None:
    directory = _metadata_log(tmp_path, [_topic("orders", ORDERS)])
    path = directory / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + _batch([_topic("torn", OTHER)], base_offset=1)[:-3])
    assert read_kraft_metadata(directory).topics == {ORDERS: "orders"}


@pytest.mark.parametrize("torn", ["zeros", "wrong checksum", "zeros in the batch"])
def test_what_a_loss_of_power_leaves_at_the_end_of_the_kraft_log_is_where_reading_stops(
    tmp_path: Path, torn: str
) -> None:
    directory = _metadata_log(tmp_path, [_topic("orders", ORDERS)])
    last = bytearray(_batch([_topic("torn", OTHER)], base_offset=1))
    if torn == "wrong checksum":
        last[-1] ^= 1
    else:
        last[30 if torn == "zeros in the batch" else 0 :] = bytes(4096)
    path = directory / f"{0:020}.log"
    path.write_bytes(path.read_bytes() + last)
    assert read_kraft_metadata(directory).topics == {ORDERS: "orders"}


def test_damage_that_no_crash_leaves_makes_the_kraft_log_unreadable(tmp_path: Path) -> None:
    directory = _metadata_log(tmp_path, [_topic("orders", ORDERS)])
    path = directory / f"{0:020}.log"
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    following = _batch([_topic("other", OTHER)], base_offset=1)
    path.write_bytes(damaged + following)
    with pytest.raises(StorageError, match="no readable KRaft metadata log"):
        read_kraft_metadata(directory)
    path.write_bytes(damaged)
    (directory / f"{1:020}.log").write_bytes(following)
    with pytest.raises(StorageError, match="no readable KRaft metadata log"):
        read_kraft_metadata(directory)


@pytest.mark.parametrize("log", ["a frame that is not known", "empty", "zeros", "missing"])
def test_topics_without_readable_kraft_metadata_are_taken_over_only_if_one_insists(
    tmp_path: Path, log: str
) -> None:
    """They would be deleted by the defaults' retention otherwise, whatever their own was."""
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    _partition(tmp_path, "orders-0", ORDERS)
    if log != "missing":
        path = _metadata_log(tmp_path, [b"\x07no such frame"]) / f"{0:020}.log"
        if not log.startswith("a"):
            path.write_bytes(bytes(0 if log == "empty" else 4096))
    with pytest.raises(StorageError, match=r"metadata\.log\.dir.*tidelog\.adopt\.without\.metadata=true"):
        find_cluster([tmp_path])
    (topic,) = find_cluster([tmp_path], without_metadata=True).topics
    assert (topic.name, topic.configs) == ("orders", {})


def test_the_metadata_log_may_lie_in_a_directory_of_its_own(tmp_path: Path) -> None:
    data, metadata = tmp_path / "data", tmp_path / "metadata"
    _metadata_log(metadata, [_topic("orders", ORDERS), _config(2, "orders", "cleanup.policy", "compact")])
    _partition(data, "orders-0", ORDERS)
    (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    (topic,) = find_cluster([data], metadata).topics
    assert topic.configs == {"cleanup.policy": "compact"}


def test_dynamic_options_of_brokers_come_from_the_kraft_metadata_log(tmp_path: Path) -> None:
    of_all, of_one = _config(4, "", "log.retention.ms", "-1"), _config(4, "1", "message.max.bytes", "7")
    _metadata_log(tmp_path, [of_all, of_one])
    found = find_cluster([tmp_path]).broker_configs
    assert found == {None: {"log.retention.ms": "-1"}, 1: {"message.max.bytes": "7"}}


def test_finding_topics_changes_nothing_on_disk(tmp_path: Path) -> None:
    _metadata_log(tmp_path, [_topic("orders", ORDERS)])
    _partition(tmp_path, "orders-0", ORDERS, "0\n1\n0 0\n")
    before = {entry: entry.stat().st_mtime_ns for entry in tmp_path.rglob("*")}
    find_cluster([tmp_path])
    assert {entry: entry.stat().st_mtime_ns for entry in tmp_path.rglob("*")} == before

"""Prints the small files of a log directory: indexes, producer snapshots and checkpoints, entry by entry.

Every function takes a path and returns how many of its entries are damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tidelog.cli.failure import Failure
from tidelog.cli.log.index_check import (
    SegmentMap,
    aborted_transactions,
    check_offset_entries,
    check_time_entries,
    offset_entries,
    time_entries,
)
from tidelog.cli.log.segment_scan import ScannedBatch, base_offset_of, map_file, scan
from tidelog.cli.output import RowStream, print_json, time_text
from tidelog.ids import uuid_to_text
from tidelog.storage.disk import REAL_DISK
from tidelog.storage.files import LOG_SUFFIX
from tidelog.storage.log.leader_epochs import LeaderEpochCache
from tidelog.storage.log.partition_metadata import read_partition_metadata
from tidelog.storage.log_dir.checkpoints import OffsetCheckpoint
from tidelog.storage.log_dir.meta_properties import read_meta_properties
from tidelog.storage.producers.producer_snapshots import decode_snapshot

Columns = tuple[tuple[str, int], ...]
Entry = tuple[tuple[object, ...], str | None]


def dump_offset_index(path: Path, *, verify: bool, json: bool) -> int:
    """Offsets and the positions of their batches."""
    if verify:
        checked = check_offset_entries(offset_entries(path), _segment_beside(path))
    else:
        checked = ((entry, None) for entry in offset_entries(path))
    return _print(path, (("offset", -20), ("position", -12)), checked, json)


def dump_time_index(path: Path, *, verify: bool, json: bool) -> int:
    """Timestamps and the offsets that have them."""
    columns = (("timestamp", -20), ("time", 24), ("offset", -20))
    if verify:
        checked = check_time_entries(time_entries(path), _segment_beside(path))
    else:
        checked = ((entry, None) for entry in time_entries(path))
    rows = (((at, time_text(at), offset), problem) for (at, offset), problem in checked)
    return _print(path, columns, rows, json)


def dump_transaction_index(path: Path, *, json: bool) -> int:
    """Aborted transactions."""
    columns = (
        ("producer_id", -12),
        ("first_offset", -20),
        ("last_offset", -20),
        ("last_stable_offset", -20),
    )
    return _print(path, columns, ((entry, None) for entry in aborted_transactions(path)), json)


def dump_producer_snapshot(path: Path, *, json: bool) -> int:
    """What is known of each producer."""
    columns = (
        ("producer_id", -12),
        ("epoch", -6),
        ("first_sequence", -14),
        ("last_sequence", -14),
        ("last_offset", -20),
        ("last_timestamp", -14),
        ("coordinator_epoch", -17),
        ("txn_first_offset", -20),
    )
    rows = (
        (
            (
                entry.producer_id,
                entry.epoch,
                entry.batches[-1].first_sequence if entry.batches else None,
                entry.last_sequence,
                entry.last_offset,
                entry.last_timestamp,
                entry.coordinator_epoch,
                entry.txn_first_offset,
            ),
            None,
        )
        for entry in decode_snapshot(path.read_bytes(), path)
    )
    return _print(path, columns, rows, json)


def dump_leader_epochs(path: Path, *, json: bool) -> int:
    """Leader epochs and where they begin."""
    path.stat()
    entries = LeaderEpochCache.load(path, REAL_DISK).entries
    return _print(path, (("epoch", -8), ("start_offset", -20)), ((entry, None) for entry in entries), json)


def dump_checkpoint(path: Path, *, json: bool) -> int:
    """One offset per partition."""
    path.stat()
    offsets = sorted(OffsetCheckpoint(path).read().items())
    rows = (((name.topic, name.partition, offset), None) for name, offset in offsets)
    return _print(path, (("topic", 40), ("partition", -9), ("offset", -20)), rows, json)


def dump_partition_metadata(path: Path, *, json: bool) -> int:
    """The topic id of a partition's directory."""
    path.stat()
    topic_id = read_partition_metadata(path.parent)
    rows = [] if topic_id is None else [((uuid_to_text(topic_id),), None)]
    return _print(path, (("topic_id", 22),), rows, json)


def dump_meta_properties(path: Path, *, json: bool) -> int:
    """Whose log directory this is."""
    path.stat()
    meta = read_meta_properties(path.parent)
    rows: list[Entry] = []
    if meta is not None:
        directory_id = None if meta.directory_id is None else uuid_to_text(meta.directory_id)
        rows = [((meta.version, meta.broker_id, meta.cluster_id, directory_id), None)]
    columns = (("version", -7), ("broker_id", -9), ("cluster_id", 22), ("directory_id", 22))
    return _print(path, columns, rows, json)


def _print(path: Path, columns: Columns, entries: Iterable[Entry], json: bool) -> int:
    damaged = 0
    rows = None if json else RowStream((*((name.upper(), width) for name, width in columns), ("STATE", 2)))
    for values, problem in entries:
        damaged += problem is not None
        if rows is not None:
            rows.row((*values, "ok" if problem is None else f"BAD {problem}"), bad=problem is not None)
        else:
            fields = dict(zip((name for name, _ in columns), values, strict=True))
            print_json({**fields, "valid": problem is None, "problem": problem}, indent=None)
    return damaged


def _segment_beside(path: Path) -> SegmentMap:
    log = path.with_name(path.name.partition(".")[0] + LOG_SUFFIX)
    if not log.exists():
        raise Failure(f"{path} cannot be verified: its segment {log} is missing")
    with map_file(log) as data:
        batches = scan(data, base_offset_of(log))
        return SegmentMap(batch for batch in batches if isinstance(batch, ScannedBatch))
